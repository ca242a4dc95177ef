/** One session's row in the admins' table. */
import { button, h, setAttr, setText } from '../../dom.js';
import { agoText, countdownText, until } from '../../model/clock.js';
import { endWordsOfOther, sizeText, stateWords, tierWords } from '../../model/words.js';
import { endSession } from './acts.js';

/** @typedef {import('../../types.js').Session} Session */
/** @typedef {import('../../app.js').App} App */

const idleText = (/** @type {Session} */ s, /** @type {number} */ now) => {
  if (s.state !== 'active' && s.state !== 'starting') return '–';
  return s.idle_paused ? 'paused, running' : left(s.idle_deadline, now);
};
const maxText = (/** @type {Session} */ s, /** @type {number} */ now) => (s.state === 'active' || s.state === 'starting' ? left(s.max_deadline, now) + (s.extended_s ? ' (extended)' : '') : '–');
const left = (/** @type {string | null} */ time, /** @type {number} */ now) => {
  const ms = until(time, now);
  return ms === null ? '–' : countdownText(ms);
};
export const profileText = (/** @type {Session} */ s) => (s.profile === s.tier ? tierWords(s.tier) : `${s.profile} · ${tierWords(s.tier)}`);
export const endText = (/** @type {Session} */ s, /** @type {number} */ now) => (s.reason ? endWordsOfOther(s.reason) + (s.ended_at ? `, ${agoText(s.ended_at, now)}` : '') : '–');
export const cpuText = (/** @type {number | undefined} */ seconds) => (seconds === undefined ? '–' : `${seconds.toFixed(1)} s`);

/** `key`: what is sorted by. @type {{title: string, key: (s: Session) => string | number, text: (s: Session, now: number) => string, number?: boolean}[]} */
export const COLUMNS = [
  { title: 'Owner', key: (s) => s.user, text: (s) => s.user },
  { title: 'Tenant', key: (s) => s.tenant, text: (s) => s.tenant },
  { title: 'Session', key: (s) => s.name || s.session_id, text: (s) => s.name || s.session_id },
  { title: 'Profile', key: (s) => s.profile, text: profileText },
  { title: 'Generation', key: (s) => s.generation, text: (s) => String(s.generation), number: true },
  { title: 'State', key: (s) => s.state, text: stateWords },
  { title: 'Idle ends', key: (s) => s.idle_deadline ?? '~', text: idleText },
  { title: 'Maximum ends', key: (s) => s.max_deadline ?? '~', text: maxText },
  { title: 'Memory', key: (s) => -(s.resources?.memory_bytes ?? 0), text: (s) => sizeText(s.resources?.memory_bytes) || '–', number: true },
  { title: 'CPU time', key: (s) => -(s.resources?.cpu_s ?? 0), text: (s) => cpuText(s.resources?.cpu_s), number: true },
  { title: 'Processes', key: (s) => -(s.resources?.pids ?? 0), text: (s) => String(s.resources?.pids ?? '–'), number: true },
  { title: 'Last end', key: (s) => s.reason, text: endText },
];
const STATE = COLUMNS.findIndex((c) => c.title === 'State');
const SESSION = COLUMNS.findIndex((c) => c.title === 'Session');

/** @param {App} app @param {(session: Session) => void} open @param {() => Promise<void>} refresh */
export function sessionRow(app, open, refresh) {
  /** @type {Session | null} */
  let session = null;
  const cells = COLUMNS.map(({ number }) => h('td', { class: number ? 'number' : null }));
  const details = button('Details', () => session && open(session), { class: 'quiet' });
  const end = button('End', () => void (async () => {
    if (session && (await endSession(app, session))) await refresh();
  })(), { class: 'quiet bad' });
  const element = h('tr', {}, cells, h('td', { class: 'row-actions' }, details, end));
  const tick = () => {
    const s = session;
    if (s) COLUMNS.forEach(({ text }, i) => setText(/** @type {Element} */ (cells[i]), text(s, app.now)));
  };
  return {
    element,
    tick,
    /** @param {Session} next */
    draw(next) {
      session = next;
      const whose = `the session of ${next.user}, ${next.name || next.session_id}`;
      setAttr(/** @type {Element} */ (cells[SESSION]), 'title', next.session_id);
      setAttr(/** @type {Element} */ (cells[STATE]), 'data-state', next.state);
      setAttr(details, 'aria-label', `Details of ${whose}`);
      setAttr(end, 'aria-label', `End ${whose}`);
      end.hidden = next.state === 'ended';
      tick();
    },
  };
}
