/** The warning before a timer runs out: when, why, what goes, what stays, what can be done. Said once, not every second. */
import { api } from '../api.js';
import { button, fill, h, setText } from '../dom.js';
import { countdownText, until } from '../model/clock.js';
import { activeWarnings, fileRefs } from '../model/notices.js';
import { listText, variableText } from '../model/words.js';
import { recycleSandbox } from './session_bar.js';

/** @typedef {import('../types.js').Warning} Warning */

/** @param {import('../app.js').App} app */
export function warningBanner(app) {
  const box = h('div', { class: 'warnings', role: 'alert' });
  let shown = '';
  /** @type {{deadline: string | null, text: HTMLElement}[]} */
  let clocks = [];
  app.on(['session', 'timeline', 'tick', 'route', 'files'], () => {
    const warnings = app.session ? activeWarnings(app.session, app.timeline, app.now) : [];
    const signature = JSON.stringify(warnings.map((w) => [w.kind, w.at, w.variables, w.undeclared_files, w.kept_files]));
    if (signature !== shown) {
      shown = signature;
      clocks = [];
      fill(box, warnings.map((warning) => {
        const text = h('span', { role: 'timer', 'aria-live': 'off' });
        clocks.push({ deadline: warning.deadline, text });
        return banner(app, warning, text);
      }));
    }
    for (const clock of clocks) setText(clock.text, countdownText(until(clock.deadline, app.now) ?? 0));
  });
  return box;
}

/** @param {import('../app.js').App} app @param {Warning} warning @param {HTMLElement} clock */
function banner(app, warning, clock) {
  const atMaximum = warning.kind === 'max_warning';
  const id = app.session?.session_id ?? '';
  const undeclared = fileRefs(warning.undeclared_files).map((f) => f.path);
  const kept = fileRefs(warning.kept_files).map((f) => f.path);
  const variables = (warning.variables ?? []).map(variableText);
  return h('section', { class: 'warning', 'aria-label': 'The sandbox is about to end' },
    h('h2', {}, 'This sandbox ends in ', clock),
    h('p', {}, atMaximum
      ? 'It has reached its maximum lifetime. That counts from its start whatever happens in it, so it cannot be extended from here; the next run opens a fresh sandbox.'
      : 'Nothing has run for a while. Running something, uploading or Keep alive starts the idle time anew.'),
    h('dl', {},
      h('dt', {}, 'Variables lost'), h('dd', {}, variables.length ? listText(variables, 20) : 'none'),
      h('dt', {}, 'Files lost'), h('dd', {}, undeclared.length ? listText(undeclared, 20) : 'none'),
      h('dt', {}, 'Kept'), h('dd', {}, kept.length ? listText(kept, 20) : 'no files yet')),
    h('div', { class: 'warning-actions' },
      atMaximum
        ? button('Save files now and end it', () => void recycleSandbox(app), { class: 'primary' })
        : button('Keep alive', () => void app.attempt(api.keepAlive(id)).then((s) => app.adopt(s)), { class: 'primary' }),
      undeclared.slice(0, 6).map((path) => button(`Keep ${path}`, () => void app.keep(path, true))),
      undeclared.length > 1 && button('Keep all files', () => void keepAll(app, undeclared))));
}

/** @param {import('../app.js').App} app @param {string[]} paths */
async function keepAll(app, paths) {
  for (const path of paths) await app.keep(path, true);
}
