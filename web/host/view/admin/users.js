/** Disabled users, newest first, and enabling one again. */
import { api } from '../../api.js';
import { button, fill, h, setText } from '../../dom.js';
import { disableUser, enableUser } from './acts.js';

/** @param {import('../../app.js').App} app @param {() => Promise<void>} changed what else shows it */
export function disabledUsers(app, changed) {
  const body = h('tbody', {});
  const state = h('p', { class: 'muted', role: 'status' });
  const table = h('div', { class: 'table-scroll', role: 'region', tabIndex: 0, 'aria-label': 'Disabled users', hidden: true },
    h('table', {}, h('caption', { class: 'visually-hidden' }, 'Disabled users, newest first'),
      h('thead', {}, h('tr', {}, ['User', 'Tenant', 'Since', 'By', 'Sessions', 'Reason'].map((t) => h('th', { scope: 'col' }, t)),
        h('th', { scope: 'col' }, h('span', { class: 'visually-hidden' }, 'Actions')))), body));
  const name = h('input', { type: 'text', id: 'disable-name', required: true, maxLength: 255, autocomplete: 'off' });
  const tenant = h('input', { type: 'text', id: 'disable-tenant', required: true, maxLength: 255, autocomplete: 'off', value: app.me.tenant });
  const platform = app.me.roles.includes('admin');
  const form = h('form', { class: 'admin-tools', on: { submit: (/** @type {Event} */ event) => {
    event.preventDefault();
    void disableUser(app, { user: name.value.trim(), tenant: platform ? tenant.value.trim() : app.me.tenant }).then(async (done) => {
      if (!done) return;
      name.value = '';
      await both();
    });
  } } }, h('label', { htmlFor: name.id }, 'Disable'), name, platform && h('label', { htmlFor: tenant.id }, 'of tenant'), platform && tenant,
  h('button', { type: 'submit', class: 'danger' }, 'Disable user'));

  const both = async () => {
    await Promise.all([refresh(), changed()]);
  };
  const refresh = async () => {
    const answer = await app.attempt(api.disabledUsers());
    if (!answer) {
      setText(state, app.message?.text ?? 'The disabled users could not be read.');
      return;
    }
    setText(state, answer.users.length ? '' : 'Nobody is disabled.');
    table.hidden = answer.users.length === 0;
    fill(body, answer.users.map((user) => h('tr', {}, h('td', {}, user.user), h('td', {}, user.tenant),
      h('td', {}, h('time', { dateTime: user.disabled_at }, new Date(user.disabled_at).toLocaleString())), h('td', {}, user.by),
      h('td', {}, user.sessions === 'end' ? 'ended' : 'kept'), h('td', { class: 'rest' }, user.reason_text),
      h('td', { class: 'row-actions' }, button('Enable', () => void enableUser(app, user).then((done) => (done ? both() : undefined)), { class: 'quiet', 'aria-label': `Enable ${user.user} of ${user.tenant}` })))));
  };
  return {
    refresh,
    element: h('section', { class: 'admin-part', 'aria-labelledby': 'disabled-title' }, h('h2', { id: 'disabled-title' }, 'Disabled users'), form, state, table),
  };
}
