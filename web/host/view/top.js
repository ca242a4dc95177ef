/** The page's head: brand, the two views, who is logged in. */
import { api } from '../api.js';
import { button, fill, h, setAttr } from '../dom.js';
import { loggedOut } from './logged_out.js';

/** @param {import('../app.js').App} app @param {HTMLElement} top */
export function topBar(app, top) {
  const notebook = h('a', { href: '#/' }, 'Notebook');
  const admin = h('a', { href: '#/admin' }, 'Admin');
  const leave = async () => {
    if ((await app.attempt(api.logout().then(() => true))) === null) return;
    app.open('');
    loggedOut(/** @type {HTMLElement} */ (document.getElementById('view')), top, true);
  };
  fill(top,
    h('a', { class: 'brand', href: '#/' }, h('img', { src: '/static/logo.svg', alt: '', width: 24, height: 24 }), 'Sandglass'),
    app.isAdmin && h('nav', { class: 'views', 'aria-label': 'Views' }, notebook, admin),
    h('div', { class: 'who' },
      h('span', {}, h('strong', {}, app.me.user), h('span', { class: 'muted' }, ` · ${app.me.tenant}`)),
      button('Log out', () => void leave(), { class: 'quiet' })));
  app.on(['route'], () => {
    const onAdmin = location.hash === '#/admin';
    setAttr(admin, 'aria-current', onAdmin ? 'page' : null);
    setAttr(notebook, 'aria-current', onAdmin ? null : 'page');
    const open = app.session?.session_id;
    notebook.href = open ? `#/s/${encodeURIComponent(open)}` : '#/';
  });
}
