/** Lines of terminal text as elements. */
import { h } from '../dom.js';
import { ansiSpans } from '../model/ansi.js';

/** @typedef {import('../model/ansi.js').Span} Span */

/** @param {Span} span @returns {Node} */
export function paintSpan({ text, style, mark }) {
  if (mark) return h('span', { class: 'mark-hidden', title: 'An invisible control character' }, mark);
  const classes = [];
  for (const flag of /** @type {const} */ (['bold', 'dim', 'italic', 'underline', 'strike'])) if (style[flag]) classes.push(`a-${flag}`);
  const [fg, bg] = style.inverse ? [style.bg ?? 'inverse', style.fg ?? 'inverse'] : [style.fg, style.bg];
  if (fg !== null) classes.push(typeof fg === 'number' ? `a-fg${fg}` : fg === 'inverse' ? 'a-fg-inverse' : 'a-fg-rgb');
  if (bg !== null) classes.push(typeof bg === 'number' ? `a-bg${bg}` : bg === 'inverse' ? 'a-bg-inverse' : 'a-bg-rgb');
  if (!classes.length) return document.createTextNode(text);
  const element = h('span', { class: classes.join(' ') }, text);
  if (typeof fg === 'string' && fg !== 'inverse') element.style.setProperty('--fg', fg);
  if (typeof bg === 'string' && bg !== 'inverse') element.style.setProperty('--bg', bg);
  return element;
}

/** @param {string} text ANSI text of any number of lines @returns {Node[]} */
export function paintText(text) {
  return ansiSpans(text).spans.map(paintSpan);
}

/**
 * Lines [from, to) of a stream, each with its newline.
 * @param {import('../model/text.js').StreamText} text @param {number} from @param {number} to @returns {Node[]}
 */
export function paintLines(text, from, to) {
  /** @type {Node[]} */
  const nodes = [];
  // Neighbouring plain lines become one text node: 10 MB must not become a million elements.
  let plain = '';
  for (let i = from; i < to; i++) {
    const line = text.line(i);
    const newline = text.cut.has(i) || i === to - 1 ? '' : '\n';
    const { spans } = ansiSpans(line.text, line.style);
    for (const span of spans) {
      const node = paintSpan(span);
      if (node.nodeType === Node.TEXT_NODE) plain += span.text;
      else {
        if (plain) nodes.push(document.createTextNode(plain));
        plain = '';
        nodes.push(node);
      }
    }
    plain += newline;
  }
  if (plain) nodes.push(document.createTextNode(plain));
  return nodes;
}
