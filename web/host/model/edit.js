/**
 * What keys do to code, as text operations. Pure: (text, selection) in, a replacement out.
 *
 * @typedef {{from: number, to: number, insert: string, start: number, end: number}} Edit
 *   replace [from, to) with `insert`, then select [start, end)
 */
const INDENT = '    ';

/** @param {string} text @param {number} at */
const lineStart = (text, at) => text.lastIndexOf('\n', at - 1) + 1;

/** @param {string} text @param {number} start @param {number} end @returns {Edit} */
export function indent(text, start, end) {
  if (start === end) {
    const column = start - lineStart(text, start);
    const insert = ' '.repeat(INDENT.length - (column % INDENT.length));
    return { from: start, to: end, insert, start: start + insert.length, end: start + insert.length };
  }
  return lines(text, start, end, (line) => (line ? INDENT + line : line));
}

/** @param {string} text @param {number} start @param {number} end @returns {Edit} */
export function outdent(text, start, end) {
  return lines(text, start, end, (line) => line.replace(/^( {1,4}|\t)/, ''));
}

/** A new line keeps the indentation, one level more after a colon. @param {string} text @param {number} start @param {number} end @returns {Edit} */
export function newline(text, start, end) {
  const before = text.slice(lineStart(text, start), start);
  const deeper = /:\s*(#.*)?$/.test(before) ? INDENT : '';
  const insert = '\n' + (before.match(/^[ \t]*/)?.[0] ?? '') + deeper;
  return { from: start, to: end, insert, start: start + insert.length, end: start + insert.length };
}

/** Backspace in the indentation takes a whole level. @param {string} text @param {number} start @param {number} end @returns {Edit | null} */
export function backspace(text, start, end) {
  if (start !== end) return null;
  const from = lineStart(text, start);
  const before = text.slice(from, start);
  if (!before || /[^ ]/.test(before)) return null;
  const to = Math.floor((before.length - 1) / INDENT.length) * INDENT.length;
  return { from: from + to, to: start, insert: '', start: from + to, end: from + to };
}

/** @param {string} text @param {number} start @param {number} end @param {(line: string) => string} change @returns {Edit} */
function lines(text, start, end, change) {
  const from = lineStart(text, start);
  // A selection that ends at a line's start does not mean that line.
  const last = end > start && text[end - 1] === '\n' ? end - 1 : end;
  const next = text.indexOf('\n', last);
  const to = next === -1 ? text.length : next;
  const before = text.slice(from, to).split('\n');
  const after = before.map(change);
  const insert = after.join('\n');
  const shift = (after[0]?.length ?? 0) - (before[0]?.length ?? 0);
  const newStart = Math.max(from, start + shift);
  return { from, to, insert, start: newStart, end: Math.max(newStart, end + insert.length - (to - from)) };
}
