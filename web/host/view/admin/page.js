/** For admins: every session they may see, with its deadlines, use and why it ended; what can be done to it; users; the audit. */
import { api } from '../../api.js';
import { button, h, setAttr, setText } from '../../dom.js';
import { UseHistory } from '../../model/use.js';
import { messageLine } from '../message.js';
import { auditList } from './audit.js';
import { sessionCard } from './card.js';
import { sessionFilters } from './filters.js';
import { COLUMNS, sessionRow } from './row.js';
import { disabledUsers } from './users.js';

/** @typedef {import('../../types.js').Session} Session */

const REFRESH_MS = 5000;
/** Sessions of one answer; as many more are asked for as somebody wants to see. */
const PAGE = 200;
const STATE_COLUMN = COLUMNS.findIndex((c) => c.title === 'State');

/** @param {import('../../app.js').App} app */
export function adminView(app) {
  /** @type {Session[]} */
  let sessions = [];
  let sortBy = STATE_COLUMN;
  let down = false;
  let timer = 0;
  let shown = false;
  let pages = 1;
  let behind = false;
  let turn = 0;
  const used = new UseHistory();
  const summary = h('p', { class: 'muted', role: 'status' });
  const body = h('tbody', {});
  const heads = COLUMNS.map(({ title, number }, i) => h('th', { scope: 'col', class: number ? 'number' : null }, button(title, () => {
    down = sortBy === i ? !down : false;
    sortBy = i;
    draw();
  }, { class: 'sort' })));
  const problem = h('p', { class: 'message bad', role: 'alert', hidden: true });
  const more = button('Show more sessions', () => {
    pages += 1;
    void refresh();
  }, { hidden: true });

  const refresh = async () => {
    clearTimeout(timer);
    const mine = ++turn;
    try {
      /** @type {Session[]} */
      const found = [];
      /** @type {string | null} */
      let next = null;
      for (let page = 0; page < pages; page++) {
        /** @type {{sessions: Session[], next: string | null}} */
        const answer = await api.adminSessions({ ...filters.query(), limit: String(PAGE), ...(next ? { cursor: next } : {}) });
        if (mine !== turn) return;
        found.push(...answer.sessions);
        next = answer.next;
        if (!next) break;
      }
      sessions = found;
      used.add(found);
      behind = next !== null;
      for (const s of sessions) app.clock.sample(s.server_time, performance.now());
      problem.hidden = true;
    } catch (error) {
      if (mine !== turn) return;
      setText(problem, error instanceof Error ? error.message : String(error));
      problem.hidden = false;
    }
    draw();
    if (shown) timer = setTimeout(() => void refresh(), REFRESH_MS);
  };
  const refreshAll = async () => {
    await Promise.all([refresh(), users.refresh(), audit.refresh()]);
  };
  const filters = sessionFilters(app, () => {
    pages = 1;
    void refresh();
  }, () => draw());
  const audit = auditList(app);
  const users = disabledUsers(app, async () => {
    await Promise.all([refresh(), audit.refresh()]);
  });
  const card = sessionCard(app, refreshAll, used);

  /** @type {Map<string, ReturnType<typeof sessionRow>>} */
  let rows = new Map();
  const draw = () => {
    const wanted = sessions.filter((s) => filters.matches(s));
    const key = /** @type {{key: (s: Session) => string | number}} */ (COLUMNS[sortBy]).key;
    wanted.sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0) * (down ? -1 : 1));
    heads.forEach((head, i) => setAttr(head, 'aria-sort', i === sortBy ? (down ? 'descending' : 'ascending') : null));
    setText(summary, summaryText(wanted, sessions, behind));
    more.hidden = !behind;
    /** @type {Map<string, ReturnType<typeof sessionRow>>} */
    const next = new Map();
    const elements = wanted.map((s) => {
      const row = rows.get(s.session_id) ?? sessionRow(app, card.open, refreshAll);
      next.set(s.session_id, row);
      row.draw(s);
      return row.element;
    });
    rows = next;
    // Rows keep their element, so that focus and selection survive the refresh.
    const same = elements.length === body.childElementCount && elements.every((e, i) => body.children[i] === e);
    if (!same) body.replaceChildren(...elements);
  };
  app.on(['tick'], () => {
    if (shown) for (const row of rows.values()) row.tick();
  });

  const element = h('main', { class: 'admin', id: 'main', tabIndex: -1 },
    h('div', { class: 'panel-head' }, h('h1', {}, 'Sessions'), button('Refresh', () => void refreshAll(), { class: 'quiet' })),
    messageLine(app), filters.element, summary, problem,
    h('div', { class: 'table-scroll', role: 'region', tabIndex: 0, 'aria-label': 'Table of sessions' },
      h('table', {}, h('caption', { class: 'visually-hidden' }, 'Sessions with owner, state, deadlines, use and last end reason'),
        h('thead', {}, h('tr', {}, heads, h('th', { scope: 'col' }, h('span', { class: 'visually-hidden' }, 'Actions')))), body)),
    more, users.element, audit.element);
  return {
    element,
    /** @param {boolean} visible */
    show(visible) {
      shown = visible;
      if (visible) void refreshAll();
      else {
        clearTimeout(timer);
        card.close();
      }
    },
  };
}

/** @param {Session[]} wanted @param {Session[]} sessions @param {boolean} behind */
function summaryText(wanted, sessions, behind) {
  const waiting = sessions.filter((s) => s.quarantine).length;
  const live = sessions.filter((s) => s.sandbox_id).length;
  const parts = [`${wanted.length} of ${sessions.length}${behind ? ' and more' : ''} sessions shown`, `${live} with a sandbox`];
  if (waiting) parts.push(`${waiting} cannot save ${waiting === 1 ? 'its' : 'their'} files`);
  return parts.join('; ');
}
