/**
 * Terminal text to styled spans, without ever making HTML: the view sets textContent only.
 *
 * Colours (SGR) are understood; every other escape sequence is dropped, because an output cell is not a terminal. Characters
 * that change what is seen without being seen (bidi controls, stray control codes) become visible marks, so that output cannot
 * be dressed up as something else.
 *
 * @typedef {object} Style
 * @property {boolean} bold
 * @property {boolean} dim
 * @property {boolean} italic
 * @property {boolean} underline
 * @property {boolean} strike
 * @property {boolean} inverse
 * @property {number | string | null} fg  0-15: the theme's palette; a string: #rrggbb
 * @property {number | string | null} bg
 *
 * @typedef {{text: string, style: Style, mark?: string}} Span
 */

/** @type {Style} */
export const PLAIN = Object.freeze({
  bold: false, dim: false, italic: false, underline: false, strike: false, inverse: false, fg: null, bg: null,
});

/** CSI, OSC (ended by BEL or ST), and two-character escapes; an unfinished one at the end is dropped too. */
const ESCAPE = /\x1b(?:\[([0-9;:?<=>!]*)[ -/]*([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\|$)|[PX^_][^\x1b]*(?:\x1b\\|$)|\[[0-9;:?]*$|[ -/]+[0-~]|[0-Z\\^_`-~]|$)/g;

/** @type {Record<string, string>} */
const BIDI = {
  '\u061c': 'ALM', '\u200e': 'LRM', '\u200f': 'RLM', '\u202a': 'LRE', '\u202b': 'RLE', '\u202c': 'PDF', '\u202d': 'LRO',
  '\u202e': 'RLO', '\u2066': 'LRI', '\u2067': 'RLI', '\u2068': 'FSI', '\u2069': 'PDI',
};
const HIDDEN = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f]/;
const HIDDEN_EACH = new RegExp(HIDDEN.source, 'g');

/** @param {string} ch */
function markFor(ch) {
  const name = BIDI[ch];
  if (name) return name;
  const code = ch.charCodeAt(0);
  return 'U+' + code.toString(16).toUpperCase().padStart(4, '0');
}

/**
 * Split text so that every invisible control stands alone, with `mark` saying what it is.
 * @param {string} text @param {Style} style @param {Span[]} into
 */
export function pushVisible(text, style, into) {
  if (!text) return;
  if (!HIDDEN.test(text)) {
    into.push({ text, style });
    return;
  }
  let from = 0;
  for (const found of text.matchAll(HIDDEN_EACH)) {
    if (found.index > from) into.push({ text: text.slice(from, found.index), style });
    into.push({ text: found[0], style, mark: markFor(found[0]) });
    from = found.index + 1;
  }
  if (from < text.length) into.push({ text: text.slice(from), style });
}

/** @param {number} index @returns {number | string | null} */
function indexed(index) {
  if (!(index >= 0 && index <= 255)) return null;
  if (index < 16) return index;
  if (index >= 232) return rgb(8 + (index - 232) * 10, 8 + (index - 232) * 10, 8 + (index - 232) * 10);
  const cube = index - 16;
  /** @param {number} n */
  const level = (n) => (n === 0 ? 0 : 55 + n * 40);
  return rgb(level(Math.floor(cube / 36)), level(Math.floor(cube / 6) % 6), level(cube % 6));
}

/** @param {number} r @param {number} g @param {number} b */
function rgb(r, g, b) {
  return '#' + [r, g, b].map((n) => Math.min(255, Math.max(0, n | 0)).toString(16).padStart(2, '0')).join('');
}

/**
 * @param {Style} before @param {string} parameters the text between `ESC[` and `m`
 * @returns {Style}
 */
export function sgr(before, parameters) {
  const codes = parameters.split(/[;:]/).map((p) => (p === '' ? 0 : Number(p)));
  /** @type {Style} */
  const style = { ...before };
  for (let i = 0; i < codes.length; i++) {
    const c = /** @type {number} */ (codes[i]);
    if (c === 0) Object.assign(style, PLAIN);
    else if (c === 1) style.bold = true;
    else if (c === 2) style.dim = true;
    else if (c === 3) style.italic = true;
    else if (c === 4) style.underline = true;
    else if (c === 7) style.inverse = true;
    else if (c === 9) style.strike = true;
    else if (c === 22) style.bold = style.dim = false;
    else if (c === 23) style.italic = false;
    else if (c === 24) style.underline = false;
    else if (c === 27) style.inverse = false;
    else if (c === 29) style.strike = false;
    else if (c >= 30 && c <= 37) style.fg = c - 30;
    else if (c >= 90 && c <= 97) style.fg = c - 82;
    else if (c === 39) style.fg = null;
    else if (c >= 40 && c <= 47) style.bg = c - 40;
    else if (c >= 100 && c <= 107) style.bg = c - 92;
    else if (c === 49) style.bg = null;
    else if (c === 38 || c === 48) {
      const key = c === 38 ? 'fg' : 'bg';
      if (codes[i + 1] === 5) {
        style[key] = indexed(codes[i + 2] ?? -1);
        i += 2;
      } else if (codes[i + 1] === 2) {
        style[key] = rgb(codes[i + 2] ?? 0, codes[i + 3] ?? 0, codes[i + 4] ?? 0);
        i += 4;
      } else break;
    }
  }
  return style;
}

/**
 * @param {string} text @param {Style} [style] the style in force where the text begins
 * @returns {{spans: Span[], style: Style}} and the style in force where it ends
 */
export function ansiSpans(text, style = PLAIN) {
  /** @type {Span[]} */
  const spans = [];
  if (!text.includes('\x1b')) {
    pushVisible(text, style, spans);
    return { spans, style };
  }
  let from = 0;
  for (const found of text.matchAll(ESCAPE)) {
    pushVisible(text.slice(from, found.index), style, spans);
    from = found.index + found[0].length;
    if (found[2] === 'm' && !/[?<=>!]/.test(found[1] ?? '')) style = sgr(style, found[1] ?? '');
  }
  pushVisible(text.slice(from), style, spans);
  return { spans, style };
}

/** @param {string} text */
export function stripAnsi(text) {
  return text.replace(ESCAPE, '');
}

/** @param {Style} a @param {Style} b */
export function sameStyle(a, b) {
  return a === b || (a.bold === b.bold && a.dim === b.dim && a.italic === b.italic && a.underline === b.underline
    && a.strike === b.strike && a.inverse === b.inverse && a.fg === b.fg && a.bg === b.bg);
}
