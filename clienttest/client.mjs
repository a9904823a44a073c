// Drives the TypeScript MCP client against a gateway and prints what it saw as
// one line of JSON, for clienttest_test.go to judge.
//
//   node client.mjs MODE http URL
//   node client.mjs MODE login URL ISSUER CLIENT-ID CLIENT-SECRET
//   node client.mjs MODE stdio COMMAND [ARGUMENT…]
//
// MODE is legacy, auto or pin (the client's version negotiation modes).
import { Client, ClientCredentialsProvider, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

const [mode, kind, target, ...args] = process.argv.slice(2);

const client = new Client(
  { name: "clienttest", version: "1.0.0" },
  { versionNegotiation: { mode: mode === "pin" ? { pin: "2026-07-28" } : mode } },
);
const transports = {
  http: () => new StreamableHTTPClientTransport(new URL(target)),
  login: () => {
    const [expectedIssuer, clientId, clientSecret] = args;
    const authProvider = new ClientCredentialsProvider({ clientId, clientSecret, expectedIssuer });
    return new StreamableHTTPClientTransport(new URL(target), { authProvider });
  },
  stdio: () => new StdioClientTransport({ command: target, args, stderr: "ignore" }),
};

await client.connect(transports[kind]());

const { tools } = await client.listTools();
const call = (name, args) => client.callTool({ name, arguments: args });

// An unknown tool has to reach the caller as a JSON-RPC error with its code.
const unknown = await call("lab.nothing", {}).then(
  () => ({}),
  (error) => ({ code: error.code, message: error.message }),
);

const seen = {
  protocol: client.getNegotiatedProtocolVersion(),
  server: client.getServerVersion()?.name,
  tools: tools.map((tool) => tool.name),
  ok: await call("lab.echo", { text: "a <b> & c ✓", big: 12345678901, list: [1, null] }),
  failed: await call("lab.fail", { status: 422 }),
  invalid: await call("lab.fail", { status: "many" }),
  region: await call("lab.region", { region: " Ostsee ✓", tenant: null, note: "n" }),
  unknown,
};
await client.close();
console.log(JSON.stringify(seen));
process.exit(0);
