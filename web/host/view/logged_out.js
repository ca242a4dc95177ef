/** What somebody without a page session sees: how to get in, and nothing else. */
import { fill, h } from '../dom.js';

/** @param {HTMLElement} view @param {HTMLElement} top @param {boolean} [expired] there was a page session a moment ago */
export function loggedOut(view, top, expired = false) {
  fill(top, h('a', { class: 'brand', href: '/' }, h('img', { src: '/static/logo.svg', alt: '', width: 24, height: 24 }), 'Sandglass'));
  document.title = 'Log in · Sandglass';
  fill(view, h('main', { class: 'splash', id: 'main', tabIndex: -1 },
    h('h1', {}, expired ? 'You are logged out' : 'You are not logged in'),
    h('p', {}, expired
      ? 'The page’s login has ended. Your sessions go on as their timers say, and nothing was lost by this.'
      : 'Sandglass gives each person a Python session of their own, in a sandbox of its own.'),
    h('h2', {}, 'How to get in'),
    h('ul', {},
      h('li', {}, 'Open the login link that the gateway printed when it started. A link works once.'),
      h('li', {}, 'Ask whoever runs this gateway for a new link; with a token of your own you can make one yourself:')),
    h('pre', { class: 'sample', tabIndex: 0 }, 'curl -X POST -H "Authorization: Bearer $TOKEN" \\\n  -d \'{"purpose": "login"}\' ', location.origin, '/api/v1/tickets'),
    h('p', {}, h('a', { class: 'button', href: '/' }, 'Try again'))));
}
