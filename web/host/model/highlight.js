/**
 * Python code to coloured pieces: a reading aid, not a parser. Anything it does not know stays plain, and the pieces joined are
 * always exactly the code.
 *
 * @typedef {{text: string, kind: '' | 'keyword' | 'string' | 'comment' | 'number' | 'name' | 'magic'}} Piece
 */
const TOKEN = new RegExp([
  /(?<comment>#[^\n]*)/,
  /(?<string>\b[rbfuRBFU]{0,2}(?:"""(?:\\[^]|(?!""")[^\\])*(?:"""|$)|'''(?:\\[^]|(?!''')[^\\])*(?:'''|$)|"(?:\\[^]|[^"\\\n])*"?|'(?:\\[^]|[^'\\\n])*'?)|"""(?:\\[^]|(?!""")[^\\])*(?:"""|$)|'''(?:\\[^]|(?!''')[^\\])*(?:'''|$)|"(?:\\[^]|[^"\\\n])*"?|'(?:\\[^]|[^'\\\n])*'?)/,
  /(?<number>\b(?:0[xXoObB][\da-fA-F_]+|\d[\d_]*(?:\.[\d_]*)?(?:[eE][+-]?\d+)?j?))/,
  /(?<word>[\p{L}_][\p{L}\p{N}_]*)/u,
  /(?<magic>^[ \t]*(?:%%?|!)[^\n]*)/,
].map((part) => part.source).join('|'), 'gmu');

const KEYWORDS = new Set(('False None True and as assert async await break class continue def del elif else except finally for from '
  + 'global if import in is lambda nonlocal not or pass raise return try while with yield match case').split(' '));

/** Longer code is shown plain: colour is not worth a stall. */
const LIMIT = 50_000;

/** @param {string} code @returns {Piece[]} */
export function highlight(code) {
  if (code.length > LIMIT) return [{ text: code, kind: '' }];
  /** @type {Piece[]} */
  const pieces = [];
  let from = 0;
  let afterDef = false;
  for (const found of code.matchAll(TOKEN)) {
    if (found.index > from) pieces.push({ text: code.slice(from, found.index), kind: '' });
    const text = found[0];
    const groups = found.groups ?? {};
    /** @type {Piece['kind']} */
    let kind = '';
    if (groups.comment !== undefined) kind = 'comment';
    else if (groups.string !== undefined) kind = 'string';
    else if (groups.number !== undefined) kind = 'number';
    else if (groups.magic !== undefined) kind = 'magic';
    else if (KEYWORDS.has(text)) kind = 'keyword';
    else if (afterDef) kind = 'name';
    afterDef = text === 'def' || text === 'class';
    pieces.push({ text, kind });
    from = found.index + text.length;
  }
  if (from < code.length) pieces.push({ text: code.slice(from), kind: '' });
  return pieces;
}
