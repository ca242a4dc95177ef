/** The audit, newest first: who did what to whom, and why; as far back as it goes, a page at a time. */
import { api } from '../../api.js';
import { append, button, fill, h, setText } from '../../dom.js';
import { actorOf, detailText } from '../../model/life.js';

const PAGE = '100';
/** @type {[string, string][]} */
const KINDS = [['', 'everything'], ['admin:', 'acts of admins'], ['user:', 'acts of users'], ['rest:', 'sessions opened'], ['retention:', 'removed by age']];
/** Pages that a search goes through by itself until it has something to show. */
const MOST_EMPTY = 50;

/** @param {import('../../app.js').App} app */
export function auditList(app) {
  const body = h('tbody', {});
  const state = h('p', { class: 'muted', role: 'status' });
  const table = h('div', { class: 'table-scroll', role: 'region', tabIndex: 0, 'aria-label': 'Audit records', hidden: true },
    h('table', {}, h('caption', { class: 'visually-hidden' }, 'Audit records, newest first'),
      h('thead', {}, h('tr', {}, ['When', 'Who', 'What', 'Whom', 'Details'].map((t) => h('th', { scope: 'col' }, t)))), body));
  const kind = h('select', { id: 'audit-kind', on: { change: () => void refresh() } }, KINDS.map(([value, title]) => h('option', { value }, title)));
  const user = h('input', { type: 'search', id: 'audit-user', placeholder: 'exact name', on: { change: () => void refresh() } });
  const more = button('Show older ones', () => void load(), { hidden: true });
  /** @type {string | null} */
  let next = null;
  let turn = 0;

  const load = async () => {
    const mine = ++turn;
    let found = 0;
    for (let pages = 0; pages < MOST_EMPTY; pages++) {
      /** @type {Record<string, string>} */
      const query = { limit: PAGE };
      if (kind.value) query['tag'] = kind.value;
      if (user.value.trim()) query['user'] = user.value.trim();
      if (next) query['cursor'] = next;
      const answer = await app.attempt(api.audit(query));
      if (mine !== turn) return;
      if (!answer) {
        setText(state, app.message?.text ?? 'The audit could not be read.');
        return;
      }
      append(body, answer.audit.map(row));
      found += answer.audit.length;
      next = answer.next;
      if (found || !next) break;
    }
    more.hidden = next === null;
    table.hidden = body.childElementCount === 0;
    setText(state, body.childElementCount ? '' : next ? 'Nothing like that among the newer ones.' : 'Nothing is recorded.');
  };
  const refresh = async () => {
    next = null;
    fill(body);
    await load();
  };
  return {
    refresh,
    element: h('section', { class: 'audit admin-part', 'aria-labelledby': 'audit-title' },
      h('div', { class: 'panel-head' }, h('h2', { id: 'audit-title' }, 'Audit'), button('Refresh', () => void refresh(), { class: 'quiet', 'aria-label': 'Refresh the audit list' })),
      h('div', { class: 'admin-tools' }, h('label', { htmlFor: kind.id }, 'Show'), kind, h('label', { htmlFor: user.id }, 'concerning'), user),
      state, table, more),
  };
}

/** @param {import('../../types.js').AuditEntry} entry */
function row(entry) {
  const date = new Date(entry.at);
  return h('tr', {}, h('td', {}, h('time', { dateTime: entry.at }, date.toLocaleString())), h('td', {}, actorOf(entry)), h('td', {}, h('code', {}, entry.tag)),
    h('td', {}, [entry.user, entry.tenant].filter(Boolean).join(' · ') || '–'),
    h('td', { class: 'rest' }, [detailText(entry), entry.session_id && `session ${entry.session_id}`].filter(Boolean).join(' · ')));
}
