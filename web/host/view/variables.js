/** The variables as the last run left them, with their age, and those that a recycle took. */
import { button, fill, h, setText } from '../dom.js';
import { agoText } from '../model/clock.js';
import { endWords, sizeText } from '../model/words.js';
import { canRebuild, chooseCells } from './rebuild.js';

/** @param {import('../app.js').App} app */
export function variablesPanel(app) {
  const age = h('p', { class: 'muted small' });
  const list = h('div', {});
  const lost = h('div', { class: 'lost' });
  const again = button('Rebuild variables …', () => void chooseCells(app));
  let shown = '';
  app.on(['session', 'tick', 'route', 'transcript', 'rebuild'], () => {
    again.hidden = !canRebuild(app);
    const { session } = app;
    if (!session) {
      fill(list);
      fill(lost);
      shown = '';
      return;
    }
    const live = session.state === 'active' || session.state === 'starting';
    setText(age, session.variables_as_of && session.variables.length ? `as of ${agoText(session.variables_as_of, app.now)}${live ? '' : ', from the sandbox that ended'}` : '');
    const signature = JSON.stringify([session.session_id, session.variables, session.lost_variables, session.lost_because]);
    if (signature === shown) return;
    shown = signature;
    fill(list, session.variables.length
      ? h('table', {}, h('caption', { class: 'visually-hidden' }, 'Variables'),
        h('thead', {}, h('tr', {}, ['Name', 'Type', 'Size'].map((t) => h('th', { scope: 'col' }, t)))),
        h('tbody', {}, session.variables.map((v) => h('tr', {}, h('th', { scope: 'row' }, v.name), h('td', {}, v.type), h('td', { class: 'number' }, sizeText(v.size))))))
      : h('p', { class: 'muted' }, 'None yet.'));
    // The list shrinks as variables come back.
    const here = new Set(session.variables.map((v) => v.name));
    const missing = session.lost_variables.filter((v) => !here.has(v.name));
    fill(lost, missing.length > 0 && [
      h('h3', {}, 'Lost'),
      h('p', { class: 'small' }, session.lost_because ? `Because ${endWords(session.lost_because)}: ` : '', missing.map((v) => v.name).join(', ')),
      again,
    ]);
  });
  return h('section', { class: 'panel variables-panel', 'aria-labelledby': 'variables-title' },
    h('div', { class: 'panel-head' }, h('h2', { id: 'variables-title' }, 'Variables'), age), list, lost);
}
