/** The timeline: one element per item, made once and brought up to date when the item changed. */
import { fill, h, reconcile, setAttr } from '../dom.js';
import { agoText } from '../model/clock.js';
import { dividerView } from './divider.js';
import { outputsView } from './outputs.js';
import { runView } from './run.js';

/** @typedef {import('../model/timeline.js').Item} Item */
/** @typedef {{element: HTMLElement, draw: (earlier: boolean) => void, tick?: () => void}} ItemView */

/** So near to the end of the page that a reader is following along. */
const NEAR_PX = 120;

/** @param {import('../app.js').App} app @param {{load: (code: string) => void}} editor */
export function timelineView(app, editor) {
  const list = h('ol', { class: 'timeline' });
  const empty = h('div', { class: 'empty' },
    h('p', {}, 'Write Python below and run it. Upload files in the Files panel; they appear in ', h('code', {}, 'in/'), '.'),
    h('p', { class: 'muted' }, 'What you write to ', h('code', {}, 'out/'), ' is kept when the sandbox ends.'));
  const over = h('div', { class: 'empty' }, h('p', {}, 'This session has ended. What it ran is not kept any more; files that were kept can still be downloaded.'));
  /** @type {Map<string, ItemView>} */
  const views = new Map();
  let timeline = app.timeline;
  let order = -1;
  let earlier = new Set();

  const draw = () => {
    if (timeline !== app.timeline) {
      timeline = app.timeline;
      views.clear();
      list.replaceChildren();
      order = -1;
    }
    const touched = new Set(timeline.touched);
    timeline.touched.clear();
    const nowEarlier = timeline.earlier();
    for (const item of timeline.items) {
      let view = views.get(item.key);
      if (!view) {
        views.set(item.key, (view = make(app, item, editor)));
        touched.add(item.key);
      }
      if (touched.has(item.key) || nowEarlier.has(item.key) !== earlier.has(item.key)) view.draw(nowEarlier.has(item.key));
    }
    earlier = nowEarlier;
    if (order !== timeline.order) {
      order = timeline.order;
      reconcile(list, timeline.items.map((item) => /** @type {ItemView} */ (views.get(item.key)).element));
    }
    const ended = app.session?.state === 'ended';
    empty.hidden = timeline.items.length > 0 || ended || app.connection === 'connecting';
    over.hidden = !ended || timeline.runs.size > 0;
  };
  app.on(['timeline', 'connection', 'session'], draw);
  app.on(['tick', 'session', 'transcript', 'rebuild'], () => {
    for (const item of timeline.items) if (item.kind !== 'run' || item.state !== 'finished') views.get(item.key)?.tick?.();
  });
  follow(list);
  return h('section', { class: 'timeline-box', 'aria-label': 'Runs' }, empty, over, list);
}

/** Stay at the end of the page while it grows, for a reader who is there. @param {HTMLElement} list */
function follow(list) {
  let following = true;
  const root = document.documentElement;
  addEventListener('scroll', () => {
    following = root.scrollHeight - innerHeight - scrollY < NEAR_PX;
  }, { passive: true });
  new ResizeObserver(() => {
    if (following) scrollTo({ top: root.scrollHeight, behavior: 'instant' });
  }).observe(list);
}

/** @param {import('../app.js').App} app @param {Item} item @param {{load: (code: string) => void}} editor @returns {ItemView} */
function make(app, item, editor) {
  if (item.kind === 'run') return runView(app, item, editor);
  if (item.kind === 'divider') return dividerView(app, item);
  const element = h('li', { class: item.kind });
  if (item.kind === 'loose') {
    const outputs = outputsView(app, item.outputs, 'output outside a run');
    element.append(h('p', { class: 'muted small' }, 'Output outside a run'), outputs.element);
    return { element, draw: () => outputs.draw() };
  }
  if (item.kind === 'gap') {
    fill(element, h('p', {}, 'Earlier output is no longer kept in the live record. Runs from before come from the transcript, as far as it goes.'));
  } else {
    setAttr(element, 'data-kind', item.notice.kind);
    fill(element, h('p', {}, item.notice.text || item.notice.kind.replaceAll('_', ' '), h('span', { class: 'muted small' }, ` · ${agoText(item.notice.at, app.now)}`)));
  }
  return { element, draw: () => {} };
}
