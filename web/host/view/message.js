/** One line for what went wrong with the last thing asked for, and for a lost connection. */
import { button, fill, h } from '../dom.js';

/** @param {import('../app.js').App} app */
export function messageLine(app) {
  const problem = h('div', { class: 'message', role: 'alert' });
  const connection = h('div', { class: 'message calm', role: 'status' });
  app.on(['message'], () => {
    const { message } = app;
    if (!message) fill(problem);
    else {
      fill(problem, h('p', {}, message.text), button('Dismiss', () => app.say(''), { class: 'quiet', 'aria-label': 'Dismiss this message' }));
      problem.classList.toggle('bad', message.bad);
    }
  });
  app.on(['connection', 'session'], () => {
    const text = app.connection === 'reconnecting' && app.session
      ? 'Reconnecting to the gateway … What runs goes on running; its output will appear here.' : '';
    if ((connection.textContent ?? '') !== text) fill(connection, text && h('p', {}, text));
  });
  return h('div', { class: 'messages' }, problem, connection);
}
