/** Starts the page: who is it, which view, and the once-a-second tick. */
import { api, ApiError } from './api.js';
import { App } from './app.js';
import { fill, h } from './dom.js';
import { adminView } from './view/admin/page.js';
import { installHelp } from './view/help.js';
import { notebookView } from './view/notebook.js';
import { loggedOut } from './view/logged_out.js';
import { topBar } from './view/top.js';

const view = /** @type {HTMLElement} */ (document.getElementById('view'));
const top_ = /** @type {HTMLElement} */ (document.getElementById('top'));

async function start() {
  let me;
  try {
    me = await api.me();
  } catch (error) {
    if (error instanceof ApiError && (error.status === 401 || error.status === 403)) loggedOut(view, top_);
    else {
      fill(view, h('main', { class: 'splash', id: 'main' }, h('h1', {}, 'The gateway cannot be reached'),
        h('p', {}, error instanceof Error ? error.message : String(error)), h('p', {}, 'Trying again in a few seconds.')));
      setTimeout(() => void start(), 3000);
    }
    return;
  }
  const app = new App(me);
  topBar(app, top_);
  installHelp();

  const notebook = notebookView(app);
  const admin = app.isAdmin ? adminView(app) : null;
  let shown = '';
  const route = () => {
    const [, name, id] = location.hash.split('/');
    const wanted = name === 'admin' && admin ? 'admin' : 'notebook';
    if (wanted !== shown) {
      fill(view, wanted === 'admin' && admin ? admin.element : notebook);
      admin?.show(wanted === 'admin');
      shown = wanted;
    }
    if (name === 's' && id) app.open(decodeURIComponent(id));
    app.changed('route', 'session', 'timeline');
  };
  addEventListener('hashchange', route);
  app.on(['connection'], () => {
    if (app.connection === 'unauthenticated') loggedOut(view, top_, true);
  });

  await app.load();
  if (!location.hash.startsWith('#/')) {
    const newest = app.sessions.find((s) => s.state !== 'ended');
    history.replaceState(null, '', newest ? `#/s/${encodeURIComponent(newest.session_id)}` : '#/');
  }
  route();

  document.addEventListener('visibilitychange', () => app.visibilityChanged());
  addEventListener('online', () => app.visibilityChanged());
  let wall = Date.now();
  let steady = performance.now();
  setInterval(() => {
    // The two clocks part when the computer slept or was set anew; either way the countdown must be read again.
    if (Math.abs(Date.now() - wall - (performance.now() - steady)) > 2000) void app.resync();
    wall = Date.now();
    steady = performance.now();
    app.changed('tick');
  }, 500);
}

document.getElementById('skip')?.addEventListener('click', (event) => {
  event.preventDefault();
  const target = document.getElementById('code') ?? document.getElementById('main');
  target?.focus();
});
void start();
