/** For admins: every session they may see, with its deadlines and why it ended; ending one; the audit list. */
import { api } from '../api.js';
import { announce, button, confirmDialog, h, setAttr, setText } from '../dom.js';
import { agoText, countdownText, until } from '../model/clock.js';
import { endWords, listText, sizeText, stateWords, tierWords } from '../model/words.js';
import { auditList } from './audit.js';

/** @typedef {import('../types.js').Session} Session */

const REFRESH_MS = 5000;
/** Rows drawn at once; the filter finds the others. */
const ROWS = 300;

/** @type {{title: string, key: (s: Session) => string | number}[]} */
const COLUMNS = [
  { title: 'Owner', key: (s) => s.user },
  { title: 'Tenant', key: (s) => s.tenant },
  { title: 'Session', key: (s) => s.name || s.session_id },
  { title: 'Profile', key: (s) => s.profile },
  { title: 'Generation', key: (s) => s.generation },
  { title: 'State', key: (s) => s.state },
  { title: 'Idle ends', key: (s) => s.idle_deadline ?? '~' },
  { title: 'Maximum ends', key: (s) => s.max_deadline ?? '~' },
  { title: 'Resources', key: (s) => -(s.resources?.memory_bytes ?? 0) },
  { title: 'Last end', key: (s) => s.reason },
];

/** @param {import('../app.js').App} app */
export function adminView(app) {
  /** @type {Session[]} */
  let sessions = [];
  let sortBy = 5;
  let down = false;
  let timer = 0;
  let shown = false;
  const filter = h('input', { type: 'search', id: 'admin-filter', placeholder: 'owner, tenant, name, profile, state, reason', on: { input: () => draw() } });
  const withEnded = h('input', { type: 'checkbox', id: 'admin-ended', on: { change: () => draw() } });
  const summary = h('p', { class: 'muted', role: 'status' });
  const body = h('tbody', {});
  const heads = COLUMNS.map(({ title }, i) => h('th', { scope: 'col' }, button(title, () => {
    down = sortBy === i ? !down : false;
    sortBy = i;
    draw();
  }, { class: 'sort' })));
  const audit = auditList(app);
  const problem = h('p', { class: 'message bad', role: 'alert', hidden: true });

  const refresh = async () => {
    clearTimeout(timer);
    try {
      sessions = (await api.adminSessions()).sessions;
      for (const s of sessions) app.clock.sample(s.server_time, performance.now());
      problem.hidden = true;
    } catch (error) {
      setText(problem, error instanceof Error ? error.message : String(error));
      problem.hidden = false;
    }
    draw();
    if (shown) timer = setTimeout(() => void refresh(), REFRESH_MS);
  };

  /** @type {Map<string, ReturnType<typeof adminRow>>} */
  const rows = new Map();
  const draw = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = sessions.filter((s) => (withEnded.checked || s.state !== 'ended')
      && words.every((w) => [s.user, s.tenant, s.name, s.session_id, s.profile, s.state, s.reason].join(' ').toLowerCase().includes(w)));
    const key = /** @type {{key: (s: Session) => string | number}} */ (COLUMNS[sortBy]).key;
    wanted.sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0) * (down ? -1 : 1));
    heads.forEach((head, i) => setAttr(head, 'aria-sort', i === sortBy ? (down ? 'descending' : 'ascending') : null));
    const live = sessions.filter((s) => s.sandbox_id || s.state === 'active').length;
    setText(summary, `${wanted.length} shown of ${sessions.length} sessions; ${live} with a sandbox${wanted.length > ROWS ? `; the first ${ROWS} are listed, narrow the filter for others` : ''}`);
    const elements = wanted.slice(0, ROWS).map((s) => {
      let row = rows.get(s.session_id);
      if (!row) rows.set(s.session_id, (row = adminRow(app, s.session_id, refresh)));
      row.draw(s);
      return row.element;
    });
    // Rows keep their element, so that focus and selection survive the refresh.
    const same = elements.length === body.childElementCount && elements.every((e, i) => body.children[i] === e);
    if (!same) body.replaceChildren(...elements);
  };
  app.on(['tick'], () => {
    if (shown) for (const s of sessions) rows.get(s.session_id)?.tick();
  });

  const element = h('main', { class: 'admin', id: 'main', tabIndex: -1 },
    h('h1', {}, 'Sessions'), summary, problem,
    h('div', { class: 'admin-tools' }, h('label', { htmlFor: filter.id }, 'Filter'), filter,
      h('label', { class: 'check' }, withEnded, ' Ended ones too'), button('Refresh', () => void refresh())),
    h('div', { class: 'table-scroll', role: 'region', tabIndex: 0, 'aria-label': 'Table of sessions' },
      h('table', {}, h('caption', { class: 'visually-hidden' }, 'Sessions with owner, state, deadlines, resources and last end reason'),
        h('thead', {}, h('tr', {}, heads, h('th', { scope: 'col' }, h('span', { class: 'visually-hidden' }, 'Actions')))), body)),
    audit.element);
  return {
    element,
    /** @param {boolean} visible */
    show(visible) {
      shown = visible;
      if (visible) {
        void refresh();
        void audit.refresh();
      } else clearTimeout(timer);
    },
  };
}

/** @param {import('../app.js').App} app @param {string} id @param {() => Promise<void>} refresh */
function adminRow(app, id, refresh) {
  const cells = COLUMNS.map(() => h('td', {}));
  const end = button('End', () => void endSession(), { class: 'quiet' });
  const element = h('tr', {}, cells, h('td', {}, end));
  /** @type {Session | null} */
  let session = null;
  const endSession = async () => {
    if (!session) return;
    const reason = await confirmDialog({
      title: `End the session of ${session.user}?`,
      lines: [`${session.name || session.session_id}, profile ${session.profile}, tenant ${session.tenant}.`,
        session.variables?.length ? `Variables that will be lost: ${listText(session.variables.map((v) => v.name))}` : null,
        'Declared files are saved. The owner is told that an administrator ended it, and this is recorded.'],
      confirm: 'End session', reason: 'Reason, for the record',
    });
    if (!reason) return;
    if (await app.attempt(api.adminEnd(id, reason))) announce('Session ended');
    await refresh();
  };
  const tick = () => {
    if (!session) return;
    const live = session.state === 'active' || session.state === 'starting';
    const idle = until(session.idle_deadline, app.now);
    const max = until(session.max_deadline, app.now);
    setText(/** @type {Element} */ (cells[6]), live && session.idle_paused ? 'paused, running' : live && idle !== null ? countdownText(idle) : '–');
    setText(/** @type {Element} */ (cells[7]), live && max !== null ? countdownText(max) : '–');
  };
  return {
    element,
    tick,
    /** @param {Session} next */
    draw(next) {
      session = next;
      const { resources } = next;
      const use = resources ? [sizeText(resources.memory_bytes), resources.cpu_s === undefined ? '' : `${resources.cpu_s.toFixed(1)} s CPU`,
        resources.pids === undefined ? '' : `${resources.pids} processes`].filter(Boolean).join(', ') : '–';
      const texts = [next.user, next.tenant, next.name || next.session_id, next.profile === next.tier ? tierWords(next.tier) : `${next.profile} · ${tierWords(next.tier)}`, String(next.generation),
        stateWords(next), null, null, use, next.reason ? endWords(next.reason) + (next.ended_at ? `, ${agoText(next.ended_at, app.now)}` : '') : '–'];
      texts.forEach((text, i) => { if (text !== null) setText(/** @type {Element} */ (cells[i]), text); });
      setAttr(/** @type {Element} */ (cells[2]), 'title', next.session_id);
      setAttr(end, 'aria-label', `End the session of ${next.user}, ${next.name || next.session_id}`);
      end.hidden = next.state === 'ended';
      tick();
    },
  };
}
