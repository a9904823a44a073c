// Uses up the budget of an API key with the TypeScript MCP client and prints what it
// saw as one line of JSON, for guarded_clients_test.go to judge.
//
//   node budget.mjs MODE http URL HEADER VALUE
//   node budget.mjs MODE stdio KEY COMMAND [ARGUMENT…]
//
// MODE is as for client.mjs. KEY goes into the command's environment.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

const [mode, kind, target, ...args] = process.argv.slice(2);

const client = new Client(
  { name: "clienttest", version: "1.0.0" },
  { versionNegotiation: { mode: mode === "pin" ? { pin: "2026-07-28" } : mode } },
);
const transport = kind === "http"
  ? new StreamableHTTPClientTransport(new URL(target), { requestInit: { headers: { [args[0]]: args[1] } } })
  : new StdioClientTransport({ command: args[0], args: args.slice(1), env: { TOLLGATE_API_KEY: target }, stderr: "ignore" });

await client.connect(transport);

const seen = { tools: (await client.listTools()).tools.map((tool) => tool.name), ok: [], refused: [] };
for (let calls = 0; calls < 4; calls++) {
  await client.callTool({ name: "lab.echo", arguments: { text: "a <b> & c ✓", big: 12345678901, list: [1, null] } }).then(
    (result) => seen.ok.push(result),
    (error) => seen.refused.push(tell(error)),
  );
}
await client.close();
console.log(JSON.stringify(seen));
process.exit(0);

// Over HTTP the client throws an error with the status and the body of the answer,
// over stdio the JSON-RPC error itself.
function tell(error) {
  const refusal = typeof error.data?.text === "string" ? JSON.parse(error.data.text).error : error;
  return { code: refusal.code, message: refusal.message, data: JSON.stringify(refusal.data), status: error.data?.status };
}
