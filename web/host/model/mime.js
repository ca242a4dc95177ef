/**
 * Which of a result's representations to show, and where. Pure.
 *
 * The page itself shows text and bitmap pictures only; everything that could hold markup goes to the frame on another origin.
 *
 * @typedef {{kind: 'image', src: string, mime: string}
 *   | {kind: 'frame', mime: 'text/html' | 'image/svg+xml', data: string}
 *   | {kind: 'text', text: string}
 *   | {kind: 'unsupported', mime: string, text: string}} Choice
 */

const BITMAPS = ['image/png', 'image/jpeg', 'image/webp', 'image/gif'];
const MARKUP = /** @type {const} */ (['text/html', 'image/svg+xml']);
const TEXTS = ['text/markdown', 'text/latex', 'text/plain'];
/** These come with an HTML twin that only works together with a script from the network. */
const VIEWERS = /^application\/(vnd\.plotly|vnd\.vega|vnd\.jupyter\.widget-view|vnd\.bokehjs|javascript)/;
const BASE64 = /^[A-Za-z0-9+/\s]*={0,2}\s*$/;
/** Larger markup would stall the frame; its text stands in for it. */
const FRAME_LIMIT = 8 * 1024 * 1024;

/** A value of a mime bundle is a string or a list of lines. @param {unknown} value */
function asText(value) {
  if (typeof value === 'string') return value;
  if (Array.isArray(value)) return value.join('');
  return value === undefined ? '' : JSON.stringify(value, null, 2);
}

/** @param {Record<string, unknown>} data @returns {Choice} */
export function choose(data) {
  const plain = asText(data['text/plain']);
  const bitmap = BITMAPS.find((mime) => mime in data && BASE64.test(asText(data[mime])));
  const viewer = Object.keys(data).find((mime) => VIEWERS.test(mime));
  if (!viewer) {
    for (const mime of MARKUP) {
      if (!(mime in data)) continue;
      const markup = asText(data[mime]);
      if (markup.length <= FRAME_LIMIT) return { kind: 'frame', mime, data: markup };
    }
  }
  if (bitmap) return { kind: 'image', mime: bitmap, src: `data:${bitmap};base64,${asText(data[bitmap]).replace(/\s/g, '')}` };
  if (viewer) return { kind: 'unsupported', mime: viewer, text: plain };
  if ('application/json' in data) return { kind: 'text', text: JSON.stringify(data['application/json'], null, 2) };
  for (const mime of TEXTS) if (mime in data) return { kind: 'text', text: asText(data[mime]) };
  const [other] = Object.keys(data);
  return other ? { kind: 'unsupported', mime: other, text: plain } : { kind: 'text', text: '' };
}

/** What a picture shows, as far as its maker said. @param {Record<string, unknown>} data @param {Record<string, any>} metadata @param {string} mime */
export function altText(data, metadata, mime) {
  const given = metadata?.[mime]?.alt ?? metadata?.alt;
  if (typeof given === 'string' && given.trim()) return given.trim();
  const plain = asText(data['text/plain']).trim();
  return plain ? `Picture: ${plain.slice(0, 200)}` : 'Picture made by this run';
}
