/**
 * One sentence for every closed word of the gateway. An unknown word is shown as it is: better raw than hidden.
 */

/** @type {Record<string, string>} */
const EXIT = {
  ok: 'Done',
  code_error: 'The code raised an error',
  syntax_error: 'The code has a syntax error',
  dependency_missing: 'A package that the code needs is not installed here',
  network_denied: 'The code tried to use the network, which a sandbox does not have',
  interrupted: 'Interrupted',
  timeout: 'Stopped: it ran longer than a run may take',
  cpu_limit: 'Stopped: it used more processor time than a run may',
  memory_limit: 'Stopped: the sandbox ran out of memory',
  process_limit: 'Stopped: too many processes',
  disk_limit: 'Stopped: the workspace is full',
  output_limit: 'It wrote more output than a run may; the rest was dropped',
  policy_denied: 'Refused by policy',
  approval_required: 'It needs a person’s approval first',
  artifact_rejected: 'A file or result that it handed over was rejected',
  kernel_died: 'The kernel died during this run',
  sandbox_ended: 'The sandbox ended before this run finished',
  generation_mismatch: 'Not run: the variables it counted on are gone',
  capacity_exhausted: 'Not run: there is no free sandbox just now',
  image_unavailable: 'Not run: the sandbox image is missing',
  platform_fault: 'A fault of the platform, not of the code',
};

/** @type {Record<string, string>} */
const END = {
  idle_timeout: 'nothing ran for the idle time',
  max_lifetime: 'the sandbox reached its maximum lifetime',
  restart: 'it was restarted',
  user: 'you ended it',
  admin: 'an administrator ended it',
  out_of_memory: 'it ran out of memory',
  crash: 'it crashed',
  host_lost: 'the machine it ran on was lost',
  policy: 'a policy ended it',
  protocol_violation: 'it broke the gateway’s protocol',
  upgrade: 'the platform was upgraded',
  retention: 'it was kept as long as it may be',
};

/** @type {Record<string, string>} */
const STATE = {
  new: 'not started', starting: 'starting', active: 'ready', draining: 'saving files', quarantined: 'waiting to save files',
  dormant: 'asleep', ended: 'ended',
};

/** @type {Record<string, string>} */
const HEADLINE = {
  recycled: 'The sandbox ended', kernel_died: 'The kernel died', kernel_restarted: 'The kernel was restarted',
  ended: 'The session ended', extended: 'Its maximum was extended', quarantined: 'Files could not be saved', restored: 'Files came back',
  start_failed: 'No sandbox could be started', idle_warning: 'Warned: idle', max_warning: 'Warned: maximum lifetime',
  output_truncated: 'Output was cut', variables_lost: 'Variables were lost', files_lost: 'Files were lost', cpu_sustained: 'Much processor time',
};

/** What somebody did, by its tag in the audit. @type {Record<string, string>} */
const ACT = {
  'rest:session:create': 'opened the session', 'jupyter:session:create': 'opened the session from Jupyter',
  'user:session:recycle': 'ended the sandbox', 'user:session:restart': 'restarted the kernel',
  'user:session:end': 'ended the session', 'admin:session:end': 'ended the session',
  'admin:session:extend': 'extended its maximum lifetime', 'admin:session:retry': 'had its files tried again',
  'admin:session:release': 'gave up what could not be saved',
  'user:artifact:delete': 'deleted a kept file', 'admin:artifact:delete': 'deleted a kept file',
  'admin:user:disable': 'disabled the user', 'admin:user:enable': 'enabled the user', 'admin:user:end_sessions': 'ended every session of the user',
};

/** @type {Record<string, string>} */
const TIER = { container: 'container', gvisor: 'gVisor', microvm: 'micro VM', wasm: 'WebAssembly', browser: 'in the browser' };

/** @param {string | null} word */
export const exitWords = (word) => (word ? (EXIT[word] ?? word.replaceAll('_', ' ')) : '');
/** A loss may also have an execution's reason (the kernel was killed for it). @param {string} word */
export function endWords(word) {
  if (END[word]) return END[word];
  const exit = EXIT[word];
  return exit ? exit[0]?.toLowerCase() + exit.slice(1) : word.replaceAll('_', ' ');
}
/** The same for whoever is not the owner. @param {string} word */
export const endWordsOfOther = (word) => (word === 'user' ? 'its owner ended it' : endWords(word));
/** @param {string} tag */
export const actWords = (tag) => ACT[tag] ?? tag;
/** @param {string} word */
export const headlineWords = (word) => HEADLINE[word] ?? word.replaceAll('_', ' ');
/** @param {string} word */
export const tierWords = (word) => TIER[word] ?? word;

/** @param {import('../types.js').Session} session */
export function stateWords(session) {
  if (session.state === 'active' && session.busy) return 'running';
  return STATE[session.state] ?? session.state;
}

/** Bytes for people. @param {number | null | undefined} bytes */
export function sizeText(bytes) {
  if (bytes === null || bytes === undefined || !Number.isFinite(bytes)) return '';
  if (bytes < 1000) return `${bytes} B`;
  const units = ['KB', 'MB', 'GB', 'TB'];
  let value = bytes;
  let unit = -1;
  do {
    value /= 1000;
    unit++;
  } while (value >= 999.5 && unit < units.length - 1);
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

/** @param {string | undefined} sha256 */
export const shortHash = (sha256) => (sha256 ? sha256.slice(0, 8) : '');

/** @param {import('../types.js').Variable} variable */
export function variableText(variable) {
  const size = sizeText(variable.size);
  return `${variable.name} (${variable.type}${size ? ', ' + size : ''})`;
}

/** A list that ends in how many more there are. @param {string[]} names @param {number} [limit] */
export function listText(names, limit = 12) {
  if (names.length <= limit) return names.join(', ');
  return `${names.slice(0, limit).join(', ')} and ${names.length - limit} more`;
}
