import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cpuMs } from './cpu.js';
import { ansiSpans, PLAIN, stripAnsi } from '../host/model/ansi.js';

const spans = (text, style) => ansiSpans(text, style).spans;

test('plain text is one span', () => {
  assert.deepEqual(spans('hello <b>'), [{ text: 'hello <b>', style: PLAIN }]);
  assert.deepEqual(spans(''), []);
});

test('colours, bold, and reset', () => {
  const [a, b, c] = spans('\x1b[1;31mred\x1b[0m plain \x1b[94mblue');
  assert.equal(a.text, 'red');
  assert.equal(a.style.bold, true);
  assert.equal(a.style.fg, 1);
  assert.deepEqual(b.style, PLAIN);
  assert.equal(c.style.fg, 12);
});

test('256 colours and true colour', () => {
  assert.equal(spans('\x1b[38;5;9mx')[0].style.fg, 9);
  assert.equal(spans('\x1b[38;5;196mx')[0].style.fg, '#ff0000');
  assert.equal(spans('\x1b[48;5;241mx')[0].style.bg, '#626262');
  assert.equal(spans('\x1b[38;2;300;0;7mx')[0].style.fg, '#ff0007');
  assert.equal(spans('\x1b[38;5;999mx')[0].style.fg, null);
});

test('the style at the end goes on in the next piece', () => {
  const first = ansiSpans('\x1b[32mgreen');
  assert.equal(spans('still', first.style)[0].style.fg, 2);
  assert.equal(spans('\x1b[mnot', first.style)[0].style.fg, null);
});

test('other escapes vanish, finished or not', () => {
  assert.equal(stripAnsi('a\x1b[2Jb\x1b[?25lc\x1b]0;title\x07d\x1b]8;;http://x\x1b\\e\x1b(Bf'), 'abcdef');
  assert.equal(stripAnsi('cut\x1b[3'), 'cut');
  assert.equal(stripAnsi('cut\x1b'), 'cut');
  assert.equal(stripAnsi('\x1b]52;c;c2VjcmV0\x07x'), 'x');
});

test('bidi and control characters become marks', () => {
  const marks = spans('a\u202eb\x00c\u2066').filter((s) => s.mark).map((s) => s.mark);
  assert.deepEqual(marks, ['RLO', 'U+0000', 'LRI']);
  assert.deepEqual(spans('tab\tנכון 漢字').map((s) => s.mark), [undefined]);
});

test('text is never lost', () => {
  const text = 'x\x1b[31my\u202ez\x1b[0m!';
  assert.equal(spans(text).map((s) => s.text).join(''), 'xy\u202ez!');
});

test('a hostile run of escapes takes linear time', () => {
  const started = cpuMs();
  stripAnsi('\x1b]'.repeat(100_000));
  stripAnsi('\x1b[' + '1;'.repeat(200_000));
  assert.ok(cpuMs() - started < 2000);
});
