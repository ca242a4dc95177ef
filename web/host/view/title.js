/** The tab's title says from afar what needs attention: a warning first, then whether something runs. */
import { countdownText, until } from '../model/clock.js';
import { activeWarnings } from '../model/notices.js';

/** @param {import('../app.js').App} app */
export function titleKeeper(app) {
  app.on(['session', 'tick', 'timeline', 'route'], () => {
    if (location.hash === '#/admin') {
      document.title = 'Admin · Sandglass';
      return;
    }
    const { session } = app;
    if (!session) {
      document.title = 'Sandglass';
      return;
    }
    const name = `${session.name || 'Session'} · Sandglass`;
    const [warning] = activeWarnings(session, app.timeline, app.now);
    const left = warning ? until(warning.deadline, app.now) : null;
    if (left !== null) document.title = `⚠ ends in ${countdownText(left)} · ${name}`;
    else document.title = session.busy ? `▶ ${name}` : name;
  });
}
