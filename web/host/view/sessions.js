/** The list of the user's sessions, and starting a new one. */
import { api } from '../api.js';
import { button, confirmDialog, h, reconcile, setAttr, setText, announce } from '../dom.js';
import { agoText } from '../model/clock.js';
import { endWords, listText, stateWords, tierWords } from '../model/words.js';

/** @typedef {import('../types.js').Session} Session */

/** @param {import('../app.js').App} app @param {string} place makes ids unique: the form appears twice */
export function newSession(app, place) {
  const profile = h('select', { id: `profile-${place}` });
  const name = h('input', { id: `name-${place}`, type: 'text', maxLength: 80, placeholder: 'Untitled', autocomplete: 'off' });
  const note = h('p', { class: 'muted small' });
  const start = h('button', { type: 'submit', class: 'primary' }, 'Start session');
  const describe = () => {
    const chosen = app.profiles.find((p) => p.name === profile.value);
    setText(note, chosen ? (chosen.available ? `Isolation: ${tierWords(chosen.tier)}` : chosen.problem || 'Not available here') : '');
  };
  profile.addEventListener('change', describe);
  const create = async () => {
    start.disabled = true;
    /** @type {{profile?: string, name?: string}} */
    const body = {};
    if (profile.value) body.profile = profile.value;
    if (name.value.trim()) body.name = name.value.trim();
    const session = await app.attempt(api.create(body));
    start.disabled = false;
    if (!session) return;
    name.value = '';
    app.adopt(session);
    announce('Session started');
    location.hash = `#/s/${encodeURIComponent(session.session_id)}`;
  };
  app.on(['sessions'], () => {
    const signature = app.profiles.map((p) => p.name + p.available).join();
    if (profile.dataset.signature === signature) return;
    profile.dataset.signature = signature;
    profile.replaceChildren(...app.profiles.map((p) => h('option', {
      value: p.name, selected: p.name === app.defaultProfile, disabled: !p.available,
    }, (p.display_name || p.name) + (p.available ? '' : ' (not available)'))));
    describe();
  });
  return h('form', { class: 'new-session', on: { submit: (/** @type {Event} */ event) => { event.preventDefault(); void create(); } } },
    h('label', { htmlFor: name.id }, 'Name'), name,
    h('label', { htmlFor: profile.id }, 'Profile'), profile, note, start);
}

/** @param {import('../app.js').App} app @param {() => void} chosen */
export function sessionList(app, chosen) {
  const live = h('ul', { class: 'session-list' });
  const ended = h('ul', { class: 'session-list' });
  const endedBox = h('details', { class: 'ended-sessions' }, h('summary', {}, 'Ended sessions'), ended);
  /** @type {Map<string, ReturnType<typeof row>>} */
  const rows = new Map();
  const draw = () => {
    for (const session of app.sessions) {
      let known = rows.get(session.session_id);
      if (!known) rows.set(session.session_id, (known = row(app, session.session_id, chosen)));
      known.draw(session);
    }
    /** @param {boolean} isEnded */
    const elements = (isEnded) => app.sessions.filter((s) => (s.state === 'ended') === isEnded)
      .map((s) => /** @type {NonNullable<ReturnType<typeof rows.get>>} */ (rows.get(s.session_id)).element);
    reconcile(live, elements(false));
    reconcile(ended, elements(true).slice(0, 50));
    endedBox.hidden = ended.childElementCount === 0;
  };
  app.on(['sessions', 'session', 'route'], draw);
  const add = h('details', { class: 'add-session' }, h('summary', { class: 'button' }, 'New session'), newSession(app, 'list'));
  return h('div', { class: 'panel' }, h('h2', {}, 'Sessions'), add, live, endedBox);
}

/** @param {import('../app.js').App} app @param {string} id @param {() => void} chosen */
function row(app, id, chosen) {
  const name = h('span', { class: 'session-name' });
  const about = h('span', { class: 'muted small' });
  const link = h('a', { href: `#/s/${encodeURIComponent(id)}`, on: { click: chosen } }, name, about);
  const end = button('End', () => void endSession(app, id), { class: 'quiet' });
  const element = h('li', {}, link, end);
  return {
    element,
    /** @param {Session} session */
    draw(session) {
      setText(name, session.name || 'Untitled');
      setText(about, session.state === 'ended'
        ? `${endWords(session.reason)} · ${agoText(session.ended_at, app.now)}`
        : `${stateWords(session)} · ${session.profile}`);
      setAttr(link, 'aria-current', session.session_id === app.session?.session_id ? 'true' : null);
      setAttr(end, 'aria-label', `End session ${session.name || 'Untitled'}`);
      end.hidden = session.state === 'ended';
    },
  };
}

/** @param {import('../app.js').App} app @param {string} id */
async function endSession(app, id) {
  const session = app.sessions.find((s) => s.session_id === id);
  if (!session) return;
  const names = session.variables.map((v) => v.name);
  const sure = await confirmDialog({
    title: `End session ${session.name || 'Untitled'}?`,
    lines: [
      'The session ends for good. Files that are kept stay downloadable; it can run nothing any more.',
      names.length ? `Variables that will be lost: ${listText(names)}` : null,
    ],
    confirm: 'End session',
  });
  if (sure !== null) app.adopt(await app.attempt(api.end(id)));
}
