// The MCP server as the protocol's TypeScript client sees it: `node web/clients/mcp.mjs URL`, the token in SANDGLASS_TOKEN.
// What it saw goes to standard output as one JSON object; tests/e2e/test_mcp.py looks at it.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const transport = new StreamableHTTPClientTransport(new URL(process.argv[2]), {
  requestInit: { headers: { Authorization: `Bearer ${process.env.SANDGLASS_TOKEN}` } },
});
const client = new Client({ name: 'sandglass-test', version: '1' });
await client.connect(transport);
const call = (name, args = {}, options = {}) => client.callTool({ name, arguments: args }, options);
const seen = { server: client.getServerVersion()?.name, tools: (await client.listTools()).tools.map((tool) => tool.name) };

seen.ran = await call('run_code', { code: "print('hello')\n6 * 7" });
seen.failed = await call('run_code', { code: '1/0' });
seen.progress = [];
const slow = "import time\nfor n in range(4):\n    print('step', n, flush=True); time.sleep(0.4)";
seen.slow = await call('run_code', { code: slow }, { onprogress: (told) => seen.progress.push(told.message ?? '') });

const leaving = new AbortController();
const waiting = call('run_code', { code: "import time\nprint('begun', flush=True)\ntime.sleep(60)" }, {
  signal: leaving.signal, onprogress: () => leaving.abort(),
});
seen.cancelled = await waiting.then(() => false, () => true);
seen.after = await call('run_code', { code: 'x = 1\nx' });
seen.status = await call('session_status');
await call('end_session');
await client.close();
process.stdout.write(`${JSON.stringify(seen)}\n`);
