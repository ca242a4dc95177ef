/** Code as it was run: coloured, with invisible characters made visible. */
import { h } from '../dom.js';
import { PLAIN, pushVisible } from '../model/ansi.js';
import { highlight } from '../model/highlight.js';
import { paintSpan } from './text_lines.js';

/** Longer code is folded until asked for. */
const FOLD_LINES = 30;

/** @param {string} code */
export function codeBlock(code) {
  const block = h('pre', { class: 'code' }, h('code', {}, highlight(code).map(({ text, kind }) => {
    /** @type {import('../model/ansi.js').Span[]} */
    const spans = [];
    pushVisible(text, PLAIN, spans);
    const nodes = spans.map(paintSpan);
    return kind ? [h('span', { class: `py-${kind}` }, nodes)] : nodes;
  }).flat()));
  const lines = code.split('\n').length;
  if (lines <= FOLD_LINES) return block;
  return h('details', { class: 'long-code' }, h('summary', {}, `${lines} lines of code`), block);
}
