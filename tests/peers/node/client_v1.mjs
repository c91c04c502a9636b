// The client of the TypeScript SDK 1.x: what most hosts ship today. See driver.mjs for the command line.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
    LoggingMessageNotificationSchema,
    ToolListChangedNotificationSchema
} from '@modelcontextprotocol/sdk/types.js';

import { run, streamWatch } from './driver.mjs';

await run(async given => {
    const client = new Client({ name: 'driver-v1', version: '1.0.0' });
    const [command, ...args] = given.url.split(' ');
    const stream = streamWatch();
    const transport = given.stdio
        ? new StdioClientTransport({ command, args })
        : new StreamableHTTPClientTransport(new URL(given.url), { fetch: stream.fetch });
    await client.connect(transport);
    return {
        about: {
            era: 'legacy',
            protocolVersion: transport.protocolVersion,
            server: client.getServerVersion(),
            session: transport.sessionId !== undefined
        },
        async *pages() {
            let cursor;
            do {
                const page = await client.listTools(cursor === undefined ? {} : { cursor });
                yield page.tools;
                cursor = page.nextCursor;
            } while (cursor !== undefined);
        },
        call: (name, args, options) => client.callTool({ name, arguments: args }, undefined, options),
        onToolsChanged: async then => {
            client.setNotificationHandler(ToolListChangedNotificationSchema, () => then());
            if (!given.stdio) await stream.opened;
        },
        logAt: async (level, then) => {
            client.setNotificationHandler(LoggingMessageNotificationSchema, note => then(note.params));
            if (client.getServerCapabilities()?.logging) await client.setLoggingLevel(level);
        },
        checkFailed: error => /structured content|output schema/i.test(error.message),
        close: async () => {
            if (!given.stdio) await transport.terminateSession();
            await client.close();
        }
    };
});
