// The client of the TypeScript SDK 1.x: what most hosts ship today. See driver.mjs for the command line.

import { UnauthorizedError, auth } from '@modelcontextprotocol/sdk/client/auth.js';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { applyMiddlewares, withLogging, withOAuth } from '@modelcontextprotocol/sdk/client/middleware.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
    CallToolResultSchema,
    CreateMessageRequestSchema,
    ElicitRequestSchema,
    ListRootsRequestSchema,
    LoggingMessageNotificationSchema,
    ResourceUpdatedNotificationSchema,
    ToolListChangedNotificationSchema
} from '@modelcontextprotocol/sdk/types.js';

import { ASKED, answers, proposing, run, streamWatch } from './driver.mjs';
import { Account, withUser } from './oauth.mjs';

/** How long a task is kept, in milliseconds. */
const TASK_TTL_MS = 60_000;

await run(async given => {
    const [command, ...args] = given.url.split(' ');
    const stream = streamWatch();
    const account = new Account();
    let client;
    let transport;
    let negotiated;
    const open = async () => {
        client = new Client({ name: 'driver-v1', version: '1.0.0' }, { capabilities: given.asks ? ASKED : {} });
        if (given.asks) {
            client.setRequestHandler(ElicitRequestSchema, answers.elicit);
            client.setRequestHandler(CreateMessageRequestSchema, answers.sample);
            client.setRequestHandler(ListRootsRequestSchema, answers.roots);
        }
        transport = given.stdio ? new StdioClientTransport({ command, args }) : overHttp(given, stream.fetch, account);
        // The transport over standard streams keeps no version.
        transport.setProtocolVersion ??= version => (negotiated = version);
        await client.connect(proposing(transport, given.revision));
    };
    const withLogin = act => withUser(act, error => error instanceof UnauthorizedError, () => finish(given, account));
    await withLogin(open);
    return {
        account,
        about: {
            era: 'legacy',
            protocolVersion: transport.protocolVersion ?? negotiated,
            server: client.getServerVersion(),
            instructions: client.getInstructions(),
            session: transport.sessionId !== undefined
        },
        library: client,
        async *pages() {
            let cursor;
            do {
                const page = await client.listTools(cursor === undefined ? {} : { cursor });
                yield page.tools;
                cursor = page.nextCursor;
            } while (cursor !== undefined);
        },
        call: (name, args, options) =>
            withLogin(() => client.callTool({ name, arguments: args }, undefined, options)),
        task: async (name, args, onStatus) => {
            // The client asks for a task where the tool's definition says so, which it keeps from the list.
            await client.listTools();
            const options = { task: { ttl: TASK_TTL_MS } };
            const told = client.experimental.tasks.callToolStream({ name, arguments: args }, CallToolResultSchema, options);
            for await (const message of told) {
                if (message.task) onStatus(message.task.status);
                if (message.type === 'result') return message.result;
                if (message.type === 'error') throw message.error;
            }
            throw new Error('the task has no end');
        },
        onToolsChanged: async then => {
            client.setNotificationHandler(ToolListChangedNotificationSchema, () => then());
            if (!given.stdio && !given.sse) await stream.opened;
        },
        subscribe: async (uri, then) => {
            client.setNotificationHandler(ResourceUpdatedNotificationSchema, note => then(note.params.uri));
            if (!given.stdio && !given.sse) await stream.opened;
            await client.subscribeResource({ uri });
        },
        logAt: async (level, then) => {
            client.setNotificationHandler(LoggingMessageNotificationSchema, note => then(note.params));
            if (level && client.getServerCapabilities()?.logging) await client.setLoggingLevel(level);
        },
        streamRequests: stream.requests,
        checkFailed: error => /structured content|output schema/i.test(error.message),
        close: async () => {
            if (!given.stdio && !given.sse) await transport.terminateSession();
            await client.close();
        }
    };
});

/** `--auth sdk` is the transport's own OAuth client, `--auth middleware` the one that wraps any fetch. */
function overHttp({ url, auth: how, sse }, fetch, account) {
    if (sse) return new SSEClientTransport(new URL(url));
    if (how === 'none') return new StreamableHTTPClientTransport(new URL(url), { fetch });
    if (how === 'sdk') return new StreamableHTTPClientTransport(new URL(url), { fetch, authProvider: account });
    const logger = ({ method, status }) => console.log(JSON.stringify({ event: 'http', method, status }));
    const wrapped = applyMiddlewares(withOAuth(account, url), withLogging({ logger }))(fetch);
    return new StreamableHTTPClientTransport(new URL(url), { fetch: wrapped });
}

/** The user came back: the code becomes a token. What was discovered is remembered by the account. */
async function finish({ url }, account) {
    await auth(account, { serverUrl: url, authorizationCode: account.takeCallback().get('code') });
}
