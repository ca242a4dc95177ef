/** The audit list, newest first; whatever fields a record has are shown, none is interpreted. */
import { api } from '../api.js';
import { button, fill, h, setText } from '../dom.js';

const SHOWN = 200;
const WHEN = ['at', 'time', 'created_at'];
const WHO = ['actor', 'user', 'by'];
const WHAT = ['tag', 'action', 'event', 'kind'];

/** @param {Record<string, any>} record @param {string[]} names */
function take(record, names) {
  const name = names.find((n) => record[n] !== undefined && record[n] !== null && record[n] !== '');
  return name === undefined ? ['', ''] : [name, String(record[name])];
}

/** @param {import('../app.js').App} app */
export function auditList(app) {
  const body = h('tbody', {});
  const state = h('p', { class: 'muted', role: 'status' });
  const table = h('div', { class: 'table-scroll', role: 'region', tabIndex: 0, 'aria-label': 'Audit records', hidden: true },
    h('table', {}, h('caption', { class: 'visually-hidden' }, 'Audit records, newest first'),
      h('thead', {}, h('tr', {}, ['When', 'Who', 'What', 'Details'].map((t) => h('th', { scope: 'col' }, t)))), body));
  const refresh = async () => {
    const answer = await app.attempt(api.audit());
    if (!answer) {
      setText(state, app.message?.text ?? 'The audit list could not be read.');
      return;
    }
    const records = [...answer.audit].sort((a, b) => ((take(a, WHEN)[1] ?? '') < (take(b, WHEN)[1] ?? '') ? 1 : -1)).slice(0, SHOWN);
    setText(state, records.length ? '' : 'Nothing is recorded yet.');
    table.hidden = records.length === 0;
    fill(body, records.map((record) => {
      const [whenKey, when] = take(record, WHEN);
      const [whoKey, who] = take(record, WHO);
      const [whatKey, what] = take(record, WHAT);
      const rest = Object.entries(record).filter(([k, v]) => ![whenKey, whoKey, whatKey].includes(k) && v !== null && v !== '')
        .map(([k, v]) => `${k}: ${typeof v === 'object' ? JSON.stringify(v) : v}`).join(' · ');
      const date = new Date(when ?? '');
      return h('tr', {}, h('td', {}, Number.isNaN(date.getTime()) ? when : h('time', { dateTime: when }, date.toLocaleString())),
        h('td', {}, who), h('td', {}, h('code', {}, what)), h('td', { class: 'rest' }, rest));
    }));
  };
  return {
    refresh,
    element: h('section', { class: 'audit', 'aria-labelledby': 'audit-title' },
      h('div', { class: 'panel-head' }, h('h2', { id: 'audit-title' }, 'Audit'), button('Refresh', () => void refresh(), { class: 'quiet', 'aria-label': 'Refresh the audit list' })),
      state,
      table),
  };
}
