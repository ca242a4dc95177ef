/** The analyst's view: sessions at the left, the timeline in the middle, files and variables at the right; one at a time on a phone. */
import { api } from '../api.js';
import { button, h, setAttr } from '../dom.js';
import { composer } from './composer.js';
import { filesPanel } from './files.js';
import { messageLine } from './message.js';
import { rebuildBar } from './rebuild.js';
import { sessionBar } from './session_bar.js';
import { newSession, sessionList } from './sessions.js';
import { timelineView } from './timeline.js';
import { titleKeeper } from './title.js';
import { transcriptPanel } from './transcript.js';
import { variablesPanel } from './variables.js';
import { warningBanner } from './warning.js';

const PANES = [['work', 'Notebook'], ['files', 'Files'], ['variables', 'Variables'], ['sessions', 'Sessions']];

/** @param {import('../app.js').App} app */
export function notebookView(app) {
  const root = h('div', { class: 'notebook', data: { pane: 'work' } });
  const tabs = PANES.map(([pane, label]) => button(/** @type {string} */ (label), () => show(/** @type {string} */ (pane)), { data: { pane } }));
  /** @param {string} pane */
  const show = (pane) => {
    root.dataset.pane = pane;
    for (const tab of tabs) setAttr(tab, 'aria-pressed', String(tab.dataset.pane === pane));
  };
  show('work');
  titleKeeper(app);

  const editor = composer(app);
  const timeline = timelineView(app, editor);
  const working = h('div', { class: 'working' }, sessionBar(app), messageLine(app), warningBanner(app), timeline,
    h('div', { class: 'dock' }, rebuildBar(app), editor.element));
  const welcome = h('div', { class: 'welcome' },
    h('h1', {}, 'Start a session'),
    h('p', {}, 'A session is a Python kernel of your own, in a sandbox of its own. Variables live until the sandbox ends; files that are kept come back in the next one.'),
    newSession(app, 'welcome'), messageLine(app));
  const missing = h('div', { class: 'welcome' }, h('h1', {}, 'No such session'),
    h('p', {}, 'It does not exist, or it is not yours.'), h('p', {}, h('a', { href: '#/' }, 'Back')));

  root.append(
    h('div', { class: 'panes', role: 'group', 'aria-label': 'Show' }, tabs),
    h('nav', { class: 'sessions-pane', 'aria-label': 'Sessions' }, sessionList(app, () => show('work'))),
    h('main', { class: 'work-pane', id: 'main', tabIndex: -1 }, working, welcome, missing),
    h('aside', { class: 'side-pane', 'aria-label': 'Files, variables and transcript' }, filesPanel(app), variablesPanel(app), transcriptPanel(app)));

  app.on(['session', 'connection', 'route'], () => {
    const wanted = location.hash.startsWith('#/s/');
    const gone = wanted && !app.session && app.connection === 'ended';
    working.hidden = !wanted || gone;
    welcome.hidden = wanted;
    missing.hidden = !gone;
    root.classList.toggle('no-session', !wanted || gone);
  });
  return root;
}

/** @param {import('../app.js').App} app @param {string} id */
export async function keepAlive(app, id) {
  app.adopt(await app.attempt(api.keepAlive(id)));
}
