/** What an admin does to sessions and users: each asked about first, with a reason for the record. True when it was done. */
import { api } from '../../api.js';
import { announce, confirmDialog, h } from '../../dom.js';
import { countdownText, until } from '../../model/clock.js';
import { listText, tierWords } from '../../model/words.js';

/** @typedef {import('../../types.js').Session} Session */
/** @typedef {import('../../app.js').App} App */

const TOLD = 'The owner is told, with your reason, and this is recorded.';
const nameOf = (/** @type {Session} */ s) => s.name || s.session_id;
const variablesLost = (/** @type {Session} */ s) => (s.variables?.length ? `Variables that will be lost: ${listText(s.variables.map((v) => v.name))}` : null);

/** @param {App} app @param {Promise<unknown>} promise @param {string} said */
async function done(app, promise, said) {
  const good = (await app.attempt(promise.then(() => true))) === true;
  if (good) announce(said);
  return good;
}

/** @param {App} app @param {Session} session */
export async function endSession(app, session) {
  const reason = await confirmDialog({
    title: `End the session of ${session.user}?`,
    lines: [`${nameOf(session)}, profile ${tierWords(session.profile)}, tenant ${session.tenant}.`, variablesLost(session),
      'Declared files are saved.', TOLD],
    confirm: 'End session', reason: 'Reason, for the record',
  });
  return reason ? done(app, api.adminEnd(session.session_id, reason), 'Session ended') : false;
}

/** @param {App} app @param {Session} session */
export async function extendSession(app, session) {
  const left = session.extension_left_s ?? 0;
  const ends = until(session.max_deadline, app.now);
  const minutes = h('input', { type: 'number', id: 'extend-minutes', required: true, min: 1, max: Math.floor(left / 60), step: 1, value: Math.min(60, Math.floor(left / 60)), 'aria-describedby': 'extend-left' });
  const reason = await confirmDialog({
    title: `Extend the sandbox of ${session.user}?`,
    lines: [`${nameOf(session)} reaches its maximum lifetime ${ends === null ? 'later' : `in ${countdownText(ends)}`}. The idle timer stays as it is.`, TOLD],
    fields: [h('div', { class: 'field' }, h('label', { htmlFor: minutes.id }, 'Minutes'), minutes,
      h('p', { class: 'muted small', id: 'extend-left' }, `Policy admits ${Math.floor(left / 60)} min more for this sandbox.`))],
    confirm: 'Extend', reason: 'Reason, for the record', danger: false,
  });
  return reason ? done(app, api.adminExtend(session.session_id, minutes.valueAsNumber * 60, reason), 'Maximum lifetime extended') : false;
}

/** @param {App} app @param {Session} session */
export function retrySession(app, session) {
  return done(app, api.adminRetry(session.session_id), 'Saving is tried again');
}

/** @param {App} app @param {import('../../types.js').SessionDetail} session */
export async function releaseSession(app, session) {
  const lose = session.would_lose;
  const names = lose ? [...lose.files, ...lose.undeclared].map((f) => f.path) : [];
  const sure = h('input', { type: 'checkbox', id: 'release-sure', required: true });
  const reason = await confirmDialog({
    title: `Give up what ${session.user}’s sandbox holds?`,
    lines: [`${nameOf(session)}: its files could not be saved, and nothing brings them back once the sandbox is destroyed.`,
      names.length ? `Files that will be lost: ${listText(names)}` : 'Which files that concerns is not known.', TOLD],
    fields: [h('label', { class: 'check' }, sure, ' These files may be lost')],
    confirm: 'Give up and destroy', reason: 'Reason, for the record',
  });
  return reason ? done(app, api.adminRelease(session.session_id, reason), 'The sandbox is destroyed') : false;
}

/** @param {App} app @param {{user: string, tenant: string}} whom */
export async function endAllSessions(app, { user, tenant }) {
  const reason = await confirmDialog({
    title: `End every session of ${user}?`,
    lines: [`All sessions of ${user}, tenant ${tenant}, end, running ones too. Declared files are saved.`, TOLD],
    confirm: 'End all sessions', reason: 'Reason, for the record',
  });
  return reason ? done(app, api.adminUser(user, 'end-sessions', { tenant, reason_text: reason }), `Every session of ${user} ends`) : false;
}

/** @param {App} app @param {{user: string, tenant: string}} whom */
export async function disableUser(app, { user, tenant }) {
  const sessions = h('select', { id: 'disable-sessions' }, h('option', { value: 'recycle' }, 'End the sandboxes, keep the sessions'), h('option', { value: 'end' }, 'End the sessions'));
  const reason = await confirmDialog({
    title: `Disable ${user}?`,
    lines: [`At once ${user}, tenant ${tenant}, is logged out everywhere: tokens, login links, pages and connections. Declared files are saved.`,
      'You can enable the user again. This is recorded.'],
    fields: [h('div', { class: 'field' }, h('label', { htmlFor: sessions.id }, 'What becomes of the sessions'), sessions)],
    confirm: 'Disable user', reason: 'Reason, for the record',
  });
  return reason ? done(app, api.adminUser(user, 'disable', { tenant, sessions: sessions.value, reason_text: reason }), `${user} is disabled`) : false;
}

/** @param {App} app @param {{user: string, tenant: string}} whom */
export async function enableUser(app, { user, tenant }) {
  const sure = await confirmDialog({
    title: `Enable ${user} again?`,
    lines: [`Tokens of ${user}, tenant ${tenant}, count again. Pages from before stay logged out. This is recorded.`],
    confirm: 'Enable user', danger: false,
  });
  return sure !== null && done(app, api.adminUser(user, 'enable', { tenant }), `${user} is enabled`);
}
