/** Text that a run wrote: all of it when short, else head and tail with the rest on demand, never a frozen page. */
import { button, fill, h, setText } from '../dom.js';
import { sizeText } from '../model/words.js';
import { paintLines } from './text_lines.js';

/** @typedef {import('../model/text.js').StreamText} StreamText */

const SHORT_LINES = 120;
const SHORT_CHARS = 24_000;
const END_LINES = 30;
const END_CHARS = 6_000;
/** Lines in one block of the whole view; blocks out of sight cost the browser no layout. */
const BLOCK = 200;
const ALL_LINES = 50_000;

/** @param {StreamText} text @param {string} name stdout, stderr or result */
export function textOutput(text, name) {
  const element = h('div', { class: `text-output ${name}` });
  if (name === 'stderr') element.append(h('span', { class: 'stream-name' }, 'stderr'));
  const head = h('pre', { class: 'text' });
  const size = h('span', { class: 'muted small' });
  const viewAll = button('View all', () => {
    all = true;
    drawAll(0);
  });
  const save = button('Save as text', () => download(text), { class: 'quiet' });
  const fold = h('div', { class: 'fold' }, size, viewAll, save);
  const tail = h('pre', { class: 'text' });
  const blocks = h('div', { class: 'blocks' });
  let all = false;
  let headLines = -1;
  element.append(head);

  const drawShort = () => {
    fill(head, paintLines(text, 0, text.count));
    fold.remove();
    tail.remove();
  };
  const drawFolded = () => {
    const wanted = ends(text, true);
    if (wanted !== headLines || text.takeDirty() < wanted) {
      headLines = wanted;
      fill(head, paintLines(text, 0, wanted));
    }
    const tailLines = Math.max(1, Math.min(ends(text, false), text.count - wanted));
    const hidden = text.count - wanted - tailLines;
    setText(size, `${hidden > 0 ? `${hidden.toLocaleString()} lines not shown` : 'Long output'} · ${sizeText(text.length)} in all`);
    fill(tail, paintLines(text, text.count - tailLines, text.count));
    if (!fold.isConnected) element.append(fold, tail);
  };
  /** @param {number} from the first line that may look different */
  const drawAll = (from) => {
    head.remove();
    tail.remove();
    if (!blocks.isConnected) element.append(blocks, fold);
    viewAll.hidden = true;
    const count = Math.min(text.count, ALL_LINES);
    setText(size, text.count > ALL_LINES ? `The first ${ALL_LINES.toLocaleString()} of ${text.count.toLocaleString()} lines; save the text for the rest` : `${sizeText(text.length)} in all`);
    let block = Math.floor(Math.min(from, count) / BLOCK);
    while (blocks.childElementCount > block) blocks.lastElementChild?.remove();
    // A slice per turn: fifty thousand lines at once would be felt.
    const turn = () => {
      const start = performance.now();
      while (block * BLOCK < count && performance.now() - start < 12) {
        blocks.append(h('pre', { class: 'text' }, paintLines(text, block * BLOCK, Math.min(count, (block + 1) * BLOCK))));
        block++;
      }
      if (block * BLOCK < count && block === blocks.childElementCount) setTimeout(turn);
    };
    turn();
  };
  return {
    element,
    draw() {
      if (all) drawAll(text.takeDirty());
      else if (text.count <= SHORT_LINES && text.length <= SHORT_CHARS) drawShort();
      else if (text.count <= 2) drawShort();
      else drawFolded();
    },
  };
}

/** How many lines fit at one end. @param {StreamText} text @param {boolean} fromStart */
function ends(text, fromStart) {
  let chars = 0;
  let n = 0;
  while (n < Math.min(END_LINES, text.count - 1)) {
    chars += (text.lines[fromStart ? n : text.count - 1 - n] ?? '').length;
    if (n > 0 && chars > END_CHARS) break;
    n++;
  }
  return n;
}

/** @param {StreamText} text */
function download(text) {
  const url = URL.createObjectURL(new Blob([text.plain()], { type: 'text/plain;charset=utf-8' }));
  h('a', { href: url, download: 'output.txt' }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
