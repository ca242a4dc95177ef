/** The small pure modules: editing, colouring, choosing what to show, tracebacks, frame messages, words. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { backspace, indent, newline, outdent } from '../host/model/edit.js';
import { isFromFrame } from '../host/model/frame_messages.js';
import { highlight } from '../host/model/highlight.js';
import { altText, choose } from '../host/model/mime.js';
import { foldTraceback } from '../host/model/traceback.js';
import { endWords, exitWords, listText, sizeText, stateWords, variableText } from '../host/model/words.js';

/** Apply an edit to text with `|` marks around the selection. */
function edited(operation, marked) {
  const start = marked.indexOf('|');
  const end = marked.lastIndexOf('|') - (marked.indexOf('|') === marked.lastIndexOf('|') ? 0 : 1);
  const text = marked.replaceAll('|', '');
  const edit = operation(text, start, end);
  if (!edit) return null;
  const after = text.slice(0, edit.from) + edit.insert + text.slice(edit.to);
  if (edit.start === edit.end) return after.slice(0, edit.start) + '|' + after.slice(edit.start);
  return after.slice(0, edit.start) + '|' + after.slice(edit.start, edit.end) + '|' + after.slice(edit.end);
}

test('indent and outdent', () => {
  assert.equal(edited(indent, 'ab|'), 'ab  |');
  assert.equal(edited(indent, '|x'), '    |x');
  assert.equal(edited(indent, 'a|b\ncd|\nef'), '    a|b\n    cd|\nef');
  assert.equal(edited(indent, '|ab\n|cd'), '    |ab\n|cd');
  assert.equal(edited(outdent, '      x|'), '  x|');
  assert.equal(edited(outdent, '    a|\n  b|'), 'a|\nb|');
  assert.equal(edited(outdent, 'x|'), 'x|');
});

test('a new line keeps and deepens', () => {
  assert.equal(edited(newline, '    x = 1|'), '    x = 1\n    |');
  assert.equal(edited(newline, 'if x:|'), 'if x:\n    |');
  assert.equal(edited(newline, 'if x:  # why|'), 'if x:  # why\n    |');
  assert.equal(edited(newline, 'a|b|c'), 'a\n|c');
});

test('backspace in the indentation', () => {
  assert.equal(edited(backspace, '        |x'), '    |x');
  assert.equal(edited(backspace, '      |x'), '    |x');
  assert.equal(edited(backspace, 'a   |'), null);
  assert.equal(edited(backspace, '|'), null);
});

test('colouring never changes the code', () => {
  for (const code of ['def f(x):\n    return f"{x!r}" # hé\n', "'''open", '"a\\"b" + \'c', '%timeit x', 'a = 0x1F + 1e-3j', '漢字 = "語"', '\\', '', '"'.repeat(5000)]) {
    assert.equal(highlight(code).map((p) => p.text).join(''), code);
  }
});

test('colouring knows the kinds', () => {
  const kinds = Object.fromEntries(highlight('def go():\n    return "s", 12 # c').filter((p) => p.kind).map((p) => [p.text, p.kind]));
  assert.deepEqual(kinds, { def: 'keyword', go: 'name', return: 'keyword', '"s"': 'string', 12: 'number', '# c': 'comment' });
});

test('what is shown, and where', () => {
  assert.equal(choose({ 'text/plain': 'x' }).kind, 'text');
  assert.deepEqual(choose({ 'text/html': ['<b>', 'x'], 'text/plain': 'x' }), { kind: 'frame', mime: 'text/html', data: '<b>x' });
  assert.equal(choose({ 'image/svg+xml': '<svg/>' }).kind, 'frame');
  assert.deepEqual(choose({ 'image/png': 'aGk=\n', 'text/plain': 'fig' }), { kind: 'image', mime: 'image/png', src: 'data:image/png;base64,aGk=' });
  assert.equal(choose({ 'application/json': { a: 1 }, 'text/plain': 'x' }).text, '{\n  "a": 1\n}');
  assert.deepEqual(choose({ 'application/vnd.plotly.v1+json': {}, 'text/html': '<script>', 'text/plain': 'Figure' }),
    { kind: 'unsupported', mime: 'application/vnd.plotly.v1+json', text: 'Figure' });
  assert.deepEqual(choose({}), { kind: 'text', text: '' });
});

test('a picture that is no base64 is not put into a link', () => {
  assert.equal(choose({ 'image/png': 'x" onerror="', 'text/plain': 'fig' }).kind, 'text');
});

test('markup that would stall the frame is not sent there', () => {
  assert.equal(choose({ 'text/html': 'x'.repeat(9_000_000), 'text/plain': 'big' }).kind, 'text');
});

test('alternative texts', () => {
  assert.equal(altText({}, { 'image/png': { alt: 'Sales' } }, 'image/png'), 'Sales');
  assert.equal(altText({ 'text/plain': '<Figure>' }, {}, 'image/png'), 'Picture: <Figure>');
  assert.equal(altText({}, {}, 'image/png'), 'Picture made by this run');
});

test('tracebacks fold to the last frame', () => {
  const parts = ['\x1b[31m-----\x1b[39m', '\x1b[31mZeroDivisionError\x1b[39m   Traceback (most recent call last)',
    '\x1b[36mCell\x1b[39m\x1b[36m \x1b[39m\x1b[32mIn[3]\x1b[39m, line 5\n      1 f()', 'File \x1b[32m~/lib.py:2\x1b[39m, in f()\n----> 2 1/0', '\x1b[31mZeroDivisionError\x1b[39m: division by zero'];
  const folded = foldTraceback(parts);
  assert.equal(folded.frames, 2);
  assert.match(folded.last, /lib\.py/);
  assert.equal(folded.full.split('\n').length, 7);
  assert.deepEqual(foldTraceback(['KernelDied']), { last: '', full: 'KernelDied', frames: 0 });
});

test('only the closed union passes from the frame', () => {
  assert.ok(isFromFrame({ type: 'ready' }));
  assert.ok(isFromFrame({ type: 'height', height: 12.5 }));
  assert.ok(isFromFrame({ type: 'error', message: 'no' }));
  for (const bad of [null, 'ready', 7, [], {}, { type: 'ready', more: 1 }, { type: 'height', height: '12' }, { type: 'height', height: NaN },
    { type: 'height', height: -1 }, { type: 'height', height: 1e9 }, { type: 'error', message: 'x'.repeat(501) }, { type: 'error' }, { type: 'render', data: '' }]) {
    assert.equal(isFromFrame(bad), false, JSON.stringify(bad));
  }
});

test('words', () => {
  assert.equal(exitWords('some_new_word'), 'some new word');
  assert.equal(endWords('idle_timeout'), 'nothing ran for the idle time');
  assert.equal(endWords('timeout'), 'stopped: it ran longer than a run may take');
  assert.equal(stateWords({ state: 'active', busy: true }), 'running');
  assert.equal(sizeText(999), '999 B');
  assert.equal(sizeText(1000), '1.0 KB');
  assert.equal(sizeText(999_600), '1.0 MB');
  assert.equal(sizeText(256_000_000), '256 MB');
  assert.equal(sizeText(null), '');
  assert.equal(variableText({ name: 'df', type: 'DataFrame', size: 2_000_000 }), 'df (DataFrame, 2.0 MB)');
  assert.equal(listText(['a', 'b', 'c'], 2), 'a, b and 1 more');
});
