import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cpuMs } from './cpu.js';
import { stripAnsi } from '../host/model/ansi.js';
import { PIECE, settle, StreamText } from '../host/model/text.js';

/** @param {...string} chunks */
function written(...chunks) {
  const text = new StreamText();
  for (const chunk of chunks) text.append(chunk);
  return text;
}
const lines = (text) => Array.from({ length: text.count }, (_, i) => stripAnsi(text.line(i).text));

test('lines, whatever the cuts', () => {
  assert.deepEqual(lines(written('a\nb\n')), ['a', 'b']);
  assert.deepEqual(lines(written('a', '\nb', 'c')), ['a', 'bc']);
  assert.deepEqual(lines(written('\n\n')), ['', '']);
  assert.deepEqual(lines(written('')), ['']);
});

test('a carriage return writes over the line', () => {
  assert.deepEqual(lines(written('10%\r20%\r100%\n')), ['100%']);
  assert.deepEqual(lines(written('abcdef\rXY')), ['XYcdef']);
  assert.deepEqual(lines(written('a\r\nb\r\n')), ['a', 'b']);
  assert.deepEqual(lines(written('a\r', '\nb')), ['a', 'b']);
  assert.deepEqual(lines(written('50%|#####     |\r')), ['50%|#####     |']);
});

test('backspace and erase', () => {
  assert.equal(settle('abc\x08\x08X'), 'aXc');
  assert.equal(settle('abcdef\r\x1b[Kxy'), 'xy');
  assert.equal(settle('abcdef\x1b[2Kxy').trim(), 'xy');
});

test('nested progress bars move up', () => {
  const text = written('outer 0%\ninner 0%\x1b[A\r', 'outer 50%\n\rinner 10%\x1b[A\router 100%\n');
  assert.deepEqual(lines(text), ['outer 100%', 'inner 10%']);
});

test('colours survive overwriting and go on in the next line', () => {
  const text = written('\x1b[31mred\nstill red\x1b[0m\nplain');
  assert.equal(text.line(1).style.fg, 1);
  assert.equal(text.line(2).style.fg, null);
  assert.equal(stripAnsi(settle('\x1b[31mabc\x1b[0m\rX')), 'Xbc');
  assert.match(settle('\x1b[31mabc\x1b[0m\rX'), /X.*\x1b\[31m.*bc/);
});

test('a million redraws are one short line', () => {
  const text = new StreamText();
  for (let i = 0; i < 100_000; i++) text.append(`\r${String(i).padStart(6)} of 100000`);
  assert.equal(text.lines.length, 1);
  assert.ok(text.lines[0].length < 20_000);
  assert.deepEqual(lines(text), [' 99999 of 100000']);
});

test('10 MB without a newline is cut into pieces and reads back whole', () => {
  const started = cpuMs();
  const long = 'x'.repeat(10_000_000);
  const text = written(long);
  assert.ok(cpuMs() - started < 2000);
  assert.ok(text.lines.every((line) => line.length <= PIECE));
  assert.equal(text.plain(), long);
});

test('10 MB in one chunk with backspaces stays bounded', () => {
  const started = cpuMs();
  written('abc\x08'.repeat(1_000_000));
  assert.ok(cpuMs() - started < 8000);
});

test('a cut splits neither an escape nor a pair', () => {
  const text = written('a'.repeat(PIECE - 2) + '\x1b[31mred' + '😀'.repeat(PIECE));
  assert.equal(text.plain(), 'a'.repeat(PIECE - 2) + 'red' + '😀'.repeat(PIECE));
  for (const line of text.lines) assert.ok(!/[\ud800-\udbff]$/.test(line));
});

test('dirty tells the lowest line that changed', () => {
  const text = written('a\nb\nc');
  assert.equal(text.takeDirty(), 0);
  text.append('d\ne');
  assert.equal(text.takeDirty(), 2);
  text.append('\x1b[2A\rX');
  assert.equal(text.takeDirty(), 1);
});
