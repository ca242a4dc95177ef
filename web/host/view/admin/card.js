/** One session in full, in a dialog: how it stands, what it uses, what it would lose, its life, and everything an admin can do. */
import { api } from '../../api.js';
import { button, fill, h, reconcile, setText } from '../../dom.js';
import { agoText, countdownText, elapsedText, until } from '../../model/clock.js';
import { lifeOf } from '../../model/life.js';
import { listText, sizeText, stateWords, variableText } from '../../model/words.js';
import { messageLine } from '../message.js';
import { disableUser, endAllSessions, endSession, extendSession, releaseSession, retrySession } from './acts.js';
import { cpuText, endText, profileText } from './row.js';
import { useCharts } from './use.js';

/** @typedef {import('../../types.js').Session} Session */
/** @typedef {import('../../types.js').SessionDetail} SessionDetail */
/** @typedef {import('../../app.js').App} App */

const REFRESH_MS = 5000;

/** @param {App} app @param {() => Promise<void>} changed @param {import('../../model/use.js').UseHistory} used */
export function sessionCard(app, changed, used) {
  /** @type {SessionDetail | null} */
  let session = null;
  let id = '';
  let timer = 0;
  const title = h('h2', { id: 'card-title' });
  const facts = factList();
  const use = useCharts();
  const quarantine = quarantineBox((act) => void run(act));
  const life = h('ol', { class: 'life' });
  /** @param {string} label @param {(app: App, s: SessionDetail) => Promise<boolean>} act @param {string} [style] */
  const action = (label, act, style = '') => button(label, () => void run(act), { class: style });
  const extend = action('Extend …', extendSession);
  const end = action('End …', endSession, 'danger');
  const endAll = action('', endAllSessions, 'danger');
  const disable = action('', disableUser, 'danger');
  const close = button('Close', () => dialog.close());
  const dialog = h('dialog', { class: 'dialog card', 'aria-labelledby': 'card-title', on: { close: () => {
    clearTimeout(timer);
    id = '';
    dialog.remove();
  } } },
  h('div', { class: 'panel-head' }, title, close), messageLine(app), quarantine.element, facts.element, use.element,
  h('div', { class: 'card-actions' }, extend, end, endAll, disable),
  h('h3', {}, 'Its life, newest first'), life);

  /** @param {(app: App, s: SessionDetail) => Promise<boolean>} act */
  const run = async (act) => {
    if (!session) return;
    app.say('');
    const done = await act(app, session);
    await Promise.all([refresh(), done ? changed() : undefined]);
  };
  const refresh = async () => {
    clearTimeout(timer);
    const asked = id;
    if (!asked) return;
    const found = await app.attempt(api.adminSession(asked));
    if (asked !== id) return;
    if (found) {
      app.clock.sample(found.server_time, performance.now());
      session = found;
      used.add([found]);
      draw();
    }
    timer = setTimeout(() => void refresh(), REFRESH_MS);
  };
  let drawn = '';
  const draw = () => {
    const s = session;
    if (!s || !id) return;
    setText(title, s.name || s.session_id);
    facts.draw(factsOf(s, app.now));
    use.draw(s.sandbox_id ? used.of(id) : []);
    quarantine.draw(s, app.now);
    extend.hidden = !(s.state === 'active' && (s.extension_left_s ?? 0) >= 60);
    end.hidden = s.state === 'ended';
    setText(endAll, `End all of ${s.user} …`);
    setText(disable, `Disable ${s.user} …`);
    disable.hidden = s.user === app.me.user && s.tenant === app.me.tenant;
    const moments = lifeOf(s);
    const signature = JSON.stringify(moments);
    if (signature === drawn) return;
    drawn = signature;
    fill(life, moments.map((m) => h('li', { data: { kind: m.kind } },
      h('time', { dateTime: m.at, class: 'muted small' }, new Date(m.at).toLocaleString()), h('strong', {}, m.title), m.text && h('span', {}, m.text))));
  };
  app.on(['tick'], () => draw());
  return {
    /** @param {Session} chosen */
    open(chosen) {
      session = null;
      drawn = '';
      id = chosen.session_id;
      app.say('');
      setText(title, chosen.name || chosen.session_id);
      facts.draw(factsOf(chosen, app.now));
      use.draw(chosen.sandbox_id ? used.of(id) : []);
      quarantine.draw(null, app.now);
      fill(life);
      for (const b of [extend, end, disable]) b.hidden = true;
      setText(endAll, `End all of ${chosen.user} …`);
      document.body.append(dialog);
      dialog.showModal();
      void refresh();
    },
    close: () => dialog.close(),
  };
}

/** @param {Session} s @param {number} now @returns {[string, string][]} */
function factsOf(s, now) {
  const idle = until(s.idle_deadline, now);
  const max = until(s.max_deadline, now);
  const live = s.state === 'active' || s.state === 'starting';
  const { memory_bytes, cpu_s, pids } = s.resources ?? {};
  return [
    ['Owner', `${s.user} · ${s.tenant}`], ['State', stateWords(s) + (s.reason ? `; last end: ${endText(s, now)}` : '')],
    ['Profile', profileText(s)], ['Generation', String(s.generation)],
    ['Opened', agoText(s.created_at, now)], ['Last activity', agoText(s.last_activity, now)],
    ['Idle ends', live && s.idle_paused ? 'paused while it runs' : live && idle !== null ? `in ${countdownText(idle)}` : 'no sandbox'],
    ['Maximum ends', live && max !== null ? `in ${countdownText(max)}${s.extended_s ? `, extended by ${countdownText(s.extended_s * 1000)}` : ''}` : 'no sandbox'],
    ['Uses', memory_bytes === undefined ? '–' : `${sizeText(memory_bytes)}, ${cpuText(cpu_s)} of CPU, ${pids} processes`],
    ['Variables', s.variables?.length ? listText(s.variables.map(variableText), 8) : 'none'],
    ['Id', s.session_id],
  ];
}

function factList() {
  const element = h('dl', { class: 'facts' });
  /** @type {Map<string, {box: HTMLElement, value: HTMLElement}>} */
  const known = new Map();
  return {
    element,
    /** @param {[string, string][]} facts */
    draw(facts) {
      reconcile(element, facts.map(([name, text]) => {
        let fact = known.get(name);
        if (!fact) {
          const value = h('dd', {});
          known.set(name, (fact = { box: h('div', {}, h('dt', {}, name), value), value }));
        }
        setText(fact.value, text);
        return fact.box;
      }));
    },
  };
}

/** @param {(act: (app: App, s: SessionDetail) => Promise<boolean>) => void} run */
function quarantineBox(run) {
  const text = h('p', {});
  const lose = h('p', {});
  const retry = button('Try now', () => run(retrySession), { class: 'primary' });
  const release = button('Give up …', () => run(releaseSession), { class: 'danger' });
  const element = h('section', { class: 'warning', 'aria-labelledby': 'quarantine-title', hidden: true },
    h('h3', { id: 'quarantine-title' }, 'Its files cannot be saved'), text, lose, h('div', { class: 'warning-actions' }, retry, release));
  return {
    element,
    /** @param {SessionDetail | null} s @param {number} now */
    draw(s, now) {
      const q = s?.quarantine;
      element.hidden = !q;
      if (!s || !q) return;
      const next = until(q.next_retry, now);
      const over = until(q.gives_up_at, now) ?? 0;
      setText(text, `${q.why || 'The store does not take them.'} Waiting for ${elapsedText(-(until(q.since, now) ?? 0))}; tried ${q.attempts === 1 ? 'once' : `${q.attempts} times`}, `
        + `${next === null ? 'trying now' : `again in ${countdownText(next)}`}, given up in ${countdownText(over)}. Nothing runs in the sandbox; its owner can download the files.`);
      const w = s.would_lose;
      setText(lose, w ? `Not saved: ${listText(w.files.map((f) => f.path)) || 'nothing declared'}. Not declared: ${listText(w.undeclared.map((f) => f.path)) || 'nothing'}.${w.more ? ` And ${w.more} more.` : ''}`
        : 'What would be lost is not known just now.');
    },
  };
}
