/** The lasting line where variables were lost: what happened, why, when, what went and what stayed. */
import { button, fill, h } from '../dom.js';
import { endWords, headlineWords, listText, shortHash, variableText } from '../model/words.js';
import { canRebuild, chooseCells } from './rebuild.js';

/** @param {string} at */
export function timeOf(at) {
  const date = new Date(at);
  return h('time', { dateTime: at, title: date.toLocaleString() }, date.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: '2-digit' }));
}

/** @param {import('../app.js').App} app @param {import('../model/timeline.js').Divider} item */
export function dividerView(app, item) {
  const element = h('li', { class: 'divider' });
  /** @param {import('../types.js').FileRef} file */
  const file = (file) => [h('code', {}, file.path), file.sha256 ? h('span', { class: 'muted', title: file.sha256 }, ` ${shortHash(file.sha256)}`) : null];
  /** @param {string} label @param {import('../types.js').FileRef[]} files */
  const files = (label, files) => files.length > 0 && h('p', {}, h('strong', {}, `${label}: `),
    files.slice(0, 12).map((f, i) => [i ? ', ' : '', ...file(f)]).flat(), files.length > 12 ? ` and ${files.length - 12} more` : '');
  const again = button('Rebuild variables …', () => void chooseCells(app));
  const tick = () => { again.hidden = item.headline === 'ended' || item !== app.timeline.lastDivider() || !canRebuild(app); };
  return {
    element,
    draw() {
      const reason = item.reason ? `: ${endWords(item.reason)}` : '';
      fill(element, h('section', { 'aria-label': `${headlineWords(item.headline)}${reason}` },
        h('h2', {}, headlineWords(item.headline) + reason, ' ', h('span', { class: 'muted small' }, timeOf(item.at))),
        (item.lost.length > 0 || item.headline !== 'ended') && h('p', {}, h('strong', {}, 'Variables lost: '), item.lost.length ? listText(item.lost.map(variableText), 20) : 'none were defined'),
        files('Files lost', item.lostFiles),
        item.said.length > 0 && h('p', {}, h('strong', {}, 'An administrator said: '), item.said.map((words) => `“${words}”`).join(', ')),
        files('Files kept', item.restored.length ? [] : item.kept),
        files('Files restored', item.restored),
        files('Not restored', item.failed),
        app.session?.state !== 'ended' && !item.closed && h('p', { class: 'muted' },
          item.headline === 'recycled' ? 'The next run opens a new sandbox.' : 'The next run starts with no variables.'),
        again));
      tick();
    },
    tick,
  };
}
