/**
 * What one stream has written, as lines, in memory proportional to what it shows: a progress bar that redraws itself a million
 * times is still one line.
 *
 * Understood: `\n`, `\r` (write over the line), backspace, erase line (`ESC[K`) and cursor up (`ESC[nA`), which is what tqdm and
 * friends use. Colours stay in the text as escapes and are read when a line is shown.
 */
import { ansiSpans, PLAIN, sameStyle, stripAnsi } from './ansi.js';

/** @typedef {import('./ansi.js').Style} Style */

/** A longer line is cut into pieces of this size, so that 10 MB without a newline cannot freeze the layout. */
export const PIECE = 4096;
/** A line that is being redrawn is settled once it has grown past this. */
const SETTLE = 8192;
const SLICE = 32_768;
const MOVES = /[\n\r]|\x1b\[(\d*)A/g;
const SEQUENCE = /\x1b\[[0-9;:?]*[ -/]*[@-~]|\x1b/y;
/** A colour that begins with a reset forgets those before it. */
const RESETS = /^\x1b\[(0?|0;.*)m$/;
const OVERWRITES = /[\r\x08]|\x1b\[[012]?K/;

/**
 * Resolve `\r`, backspace and erase in one line; the result holds only text and colours.
 * @param {string} raw
 */
export function settle(raw) {
  if (!OVERWRITES.test(raw)) return raw;
  /** @type {{ch: string, paint: string}[]} */
  const cells = [];
  let column = 0;
  let paint = '';
  for (let i = 0; i < raw.length;) {
    const code = raw.charCodeAt(i);
    if (code === 0x1b) {
      SEQUENCE.lastIndex = i;
      const token = SEQUENCE.exec(raw)?.[0] ?? '\x1b';
      i += token.length;
      if (token.endsWith('K')) erase(cells, column, token.slice(2, -1));
      else if (token.endsWith('m')) paint = RESETS.test(token) ? (token === '\x1b[0m' || token === '\x1b[m' ? '' : token) : paint + token;
      continue;
    }
    const length = code >= 0xd800 && code <= 0xdbff ? 2 : 1;
    if (code === 0x0d) column = 0;
    else if (code === 0x08) column = Math.max(0, column - 1);
    else {
      while (cells.length < column) cells.push({ ch: ' ', paint: '' });
      cells[column++] = { ch: raw.slice(i, i + length), paint };
    }
    i += length;
  }
  let out = '';
  let last = '';
  for (const cell of cells) {
    if (cell.paint !== last) out += '\x1b[0m' + cell.paint;
    last = cell.paint;
    out += cell.ch;
  }
  // The colour in force goes on after the line's end, whatever the last cell wore.
  if (last !== paint) out += '\x1b[0m' + paint;
  return out;
}

/** @param {{ch: string, paint: string}[]} cells @param {number} column @param {string} mode */
function erase(cells, column, mode) {
  if (mode === '2') cells.length = 0;
  else if (mode === '1') for (let i = 0; i < Math.min(column, cells.length); i++) cells[i] = { ch: ' ', paint: '' };
  else cells.length = Math.min(cells.length, column);
}

export class StreamText {
  constructor() {
    /** @type {string[]} */
    this.lines = [''];
    /** Lines that were cut for length: their text goes on in the next one. @type {Set<number>} */
    this.cut = new Set();
    /** The style at a line's start, where it is not plain. @type {Map<number, Style>} */
    this.styles = new Map();
    this.row = 0;
    /** Characters received, for the size that is shown. */
    this.length = 0;
    /** The lowest line changed since `takeDirty`. */
    this.dirty = 0;
  }

  /** Lines to show: a trailing newline makes no empty last line. */
  get count() {
    const last = this.lines.length - 1;
    return this.lines[last] === '' && last > 0 ? last : last + 1;
  }

  /** @param {string} text */
  append(text) {
    this.length += text.length;
    let from = 0;
    MOVES.lastIndex = 0;
    for (let found = MOVES.exec(text); found; found = MOVES.exec(text)) {
      const at = found.index;
      if (at > from) this.#write(text.slice(from, at));
      from = at + found[0].length;
      if (found[0] === '\n') this.#newline();
      else if (found[0] === '\r') {
        if (text[from] !== '\n') this.#write('\r');
      } else this.#up(Number(found[1] || '1'));
    }
    if (from < text.length) this.#write(text.slice(from));
  }

  /** @param {string} segment */
  #write(segment) {
    this.#touch(this.row);
    // In slices, so that settling works on little text however long the segment is.
    for (let from = 0; from < segment.length; from += SLICE) {
      this.#writeSlice(segment.length <= SLICE ? segment : segment.slice(from, from + SLICE));
    }
  }

  /** @param {string} slice */
  #writeSlice(slice) {
    let line = (this.lines[this.row] ?? '') + slice;
    let overwrites = OVERWRITES.test(line);
    if (line.length > SETTLE && overwrites) {
      const pendingReturn = line.endsWith('\r');
      line = settle(line) + (pendingReturn ? '\r' : '');
      overwrites = pendingReturn;
    }
    while (line.length > PIECE && !overwrites && this.row === this.lines.length - 1) {
      const end = breakAt(line);
      this.lines[this.row] = line.slice(0, end);
      this.cut.add(this.row);
      this.#advance();
      line = line.slice(end);
    }
    this.lines[this.row] = line;
  }

  #newline() {
    const raw = this.lines[this.row] ?? '';
    if (OVERWRITES.test(raw)) this.lines[this.row] = settle(raw.endsWith('\r') ? raw.slice(0, -1) : raw);
    this.#touch(this.row);
    if (this.row < this.lines.length - 1) {
      this.row++;
      this.lines[this.row] += '\r';
    } else this.#advance();
  }

  #advance() {
    const raw = this.lines[this.row] ?? '';
    const before = this.styles.get(this.row) ?? PLAIN;
    this.row++;
    this.lines.push('');
    if (before !== PLAIN || raw.includes('\x1b')) {
      const { style } = ansiSpans(raw, before);
      if (!sameStyle(style, PLAIN)) this.styles.set(this.row, style);
    }
  }

  /** @param {number} rows */
  #up(rows) {
    this.row = Math.max(0, this.row - rows);
    this.#touch(this.row);
  }

  /** @param {number} row */
  #touch(row) {
    if (row < this.dirty) this.dirty = row;
  }

  /** The lowest line that changed since the last call; lines above it look as they did. */
  takeDirty() {
    const dirty = this.dirty;
    this.dirty = this.row;
    return dirty;
  }

  /** @param {number} index */
  line(index) {
    return { text: settle(this.lines[index] ?? ''), style: this.styles.get(index) ?? PLAIN };
  }

  /** The whole text without colours, for copying and saving. */
  plain() {
    let out = '';
    for (let i = 0; i < this.lines.length; i++) {
      out += stripAnsi(settle(this.lines[i] ?? ''));
      if (i < this.lines.length - 1 && !this.cut.has(i)) out += '\n';
    }
    return out;
  }
}

/** Never cut inside an escape sequence or a surrogate pair. @param {string} line */
function breakAt(line) {
  let end = PIECE;
  const escape = line.lastIndexOf('\x1b', end - 1);
  if (escape > 0 && end - escape < 64 && !/^\x1b\[[0-9;:]*[@-~]/.test(line.slice(escape, end))) end = escape;
  const code = line.charCodeAt(end - 1);
  if (code >= 0xd800 && code <= 0xdbff) end--;
  return end;
}
