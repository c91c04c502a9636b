// The client that the conformance suite tests when it tests weir's upstream side: weir in front of the scenario's server,
// and an SDK client in front of weir that does what the scenario asks for.
//
// node scenario.mjs SERVER-URL
//
// The suite sets MCP_CONFORMANCE_SCENARIO and MCP_CONFORMANCE_CONTEXT; `cargo xtask conformance` sets WEIR_BIN, the
// binary, and WEIR_CLIENT: `modern` is the TypeScript SDK 2.x pinned to 2026-07-28, `legacy` the SDK 1.x.
// Exits 0 when everything was done, 1 when not; whether it was done well is the suite's to say.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import net from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';

import { Client as ModernClient, StreamableHTTPClientTransport as ModernTransport } from '@modelcontextprotocol/client';
import { Client as LegacyClient } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as LegacyTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';

/** Between two looks at whether weir serves, in milliseconds; the suite bounds all of it. */
const LOOK_AGAIN_MS = 50;

const METHOD_NOT_FOUND = -32601;

/** A form is answered with what is asked for by name, and its defaults are left to the SDK. */
const CAPABILITIES = { elicitation: { form: { applyDefaults: true } } };
const ANSWERS = { confirmed: true };

const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? '{}');

const scenarios = {
    // That server has no tools and says so; by then it was initialized.
    initialize: client => tools(client).catch(error => METHOD_NOT_FOUND === error.code || Promise.reject(error)),
    tools_call: client => client.callTool({ name: 'add_numbers', arguments: { a: 2, b: 3 } }),
    'elicitation-sep1034-client-defaults': callAll,
    'sse-retry': callAll,
    'json-schema-2020-12-preservation': async client => {
        const focal = (await tools(client)).find(tool => tool.name === 'json_schema_2020_12_tool');
        await client.callTool({ name: 'json_schema_echo', arguments: { schema: focal.inputSchema } });
    },
    'request-metadata': tools,
    'sep-2322-client-request-state': callAll,
    'http-standard-headers': async client => {
        await callAll(client);
        for (const { uri } of (await client.listResources()).resources) await client.readResource({ uri });
        for (const { name } of (await client.listPrompts()).prompts) await client.getPrompt({ name });
    },
    'http-custom-headers': async client => {
        await tools(client);
        for (const call of context.toolCalls) await client.callTool(call);
    },
    'http-invalid-tool-headers': callAll,
    'json-schema-ref-no-deref': tools
};

const [server] = process.argv.slice(2);
const scenario = scenarios[process.env.MCP_CONFORMANCE_SCENARIO];
if (server === undefined || scenario === undefined) {
    console.error('usage: MCP_CONFORMANCE_SCENARIO=NAME scenario.mjs SERVER-URL, for a scenario without authorization');
    process.exit(2);
}
const weir = await serve(server);
try {
    const client = await connect(weir.url);
    await scenario(client);
    await client.close();
} catch (error) {
    console.error(error);
    process.exitCode = 1;
} finally {
    await weir.stop();
}
// A client may keep a stream open that would hold the process.
process.exit();

/** Starts weir with one transparent endpoint in front of `upstream`. */
async function serve(upstream) {
    const [listen, admin] = await Promise.all([freeAddress(), freeAddress()]);
    const folder = await mkdtemp(path.join(tmpdir(), 'weir-scenario-'));
    const file = path.join(folder, 'weir.json');
    const tool = 'test_custom_headers_null';
    await writeFile(
        file,
        JSON.stringify({
            listen,
            admin: { listen: admin },
            // One scenario calls a tool with null where the tool's own schema says boolean, which weir would refuse.
            upstreams: { scenario: { url: upstream, tools: { [tool]: { validation: { input: 'off' } } } } },
            endpoints: { '/mcp': { upstream: 'scenario' } },
            // The client is gone when weir is told to stop: nothing is waited for.
            limits: { drain_idle: '10ms' }
        })
    );
    const child = spawn(process.env.WEIR_BIN, ['serve', '--config', file], { stdio: ['ignore', 'inherit', 'inherit'] });
    const ended = once(child, 'exit');
    const [host, port] = listen.split(':');
    while (!(await accepts(host, port))) {
        if (child.exitCode !== null) throw new Error(`weir ended before it served: ${child.exitCode}`);
        await pause(LOOK_AGAIN_MS);
    }
    return {
        url: new URL(`http://${listen}/mcp`),
        stop: async () => {
            child.kill();
            await ended;
            await rm(folder, { recursive: true });
        }
    };
}

/** A client of the era that is asked for, which accepts every form. */
async function connect(url) {
    const accept = () => ({ action: 'accept', content: ANSWERS });
    const about = { name: 'scenario', version: '1.0.0' };
    if (process.env.WEIR_CLIENT === 'modern') {
        const mode = { pin: '2026-07-28' };
        const client = new ModernClient(about, { capabilities: CAPABILITIES, versionNegotiation: { mode } });
        client.setRequestHandler('elicitation/create', accept);
        await client.connect(new ModernTransport(url));
        return client;
    }
    const client = new LegacyClient(about, { capabilities: CAPABILITIES });
    client.setRequestHandler(ElicitRequestSchema, accept);
    await client.connect(new LegacyTransport(url));
    return client;
}

async function tools(client) {
    return (await client.listTools()).tools;
}

/** Calls every tool of the list with some text for each argument it requires. */
async function callAll(client) {
    for (const { name, inputSchema } of await tools(client)) {
        const required = (inputSchema.required ?? []).map(argument => [argument, 'some text']);
        await client.callTool({ name, arguments: Object.fromEntries(required) });
    }
}

/** A loopback address whose port was free a moment ago. */
async function freeAddress() {
    const listener = net.createServer().listen(0, '127.0.0.1');
    await once(listener, 'listening');
    const { address, port } = listener.address();
    listener.close();
    await once(listener, 'close');
    return `${address}:${port}`;
}

async function accepts(host, port) {
    const socket = net.connect(port, host);
    try {
        await once(socket, 'connect');
        return true;
    } catch {
        return false;
    } finally {
        socket.destroy();
    }
}
