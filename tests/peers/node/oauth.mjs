// The OAuth side of the Node client drivers: what an application brings to the SDK's own OAuth client. It keeps
// everything in memory, knows no address but the MCP server's, and lets `browse` be the user's browser.

import { browse } from './browser.mjs';

/** Nobody listens there: the browser stops where this begins. */
const REDIRECT = 'http://127.0.0.1:8/callback';

/** An `OAuthClientProvider` of both SDK generations. */
export class Account {
    #client;
    #tokens;
    #verifier;
    #state;
    #discovery;
    #callback;
    /** How many token answers were kept. */
    saved = 0;
    /** How many times the user was sent to the authorization server. */
    logins = 0;

    get redirectUrl() {
        return REDIRECT;
    }

    get clientMetadata() {
        return {
            client_name: 'weir peers',
            redirect_uris: [REDIRECT],
            grant_types: ['authorization_code', 'refresh_token'],
            response_types: ['code'],
            token_endpoint_auth_method: 'none'
        };
    }

    state() {
        this.#state = crypto.randomUUID();
        return this.#state;
    }

    clientInformation() {
        return this.#client;
    }

    saveClientInformation(client) {
        this.#client = client;
    }

    tokens() {
        return this.#tokens;
    }

    saveTokens(tokens) {
        this.#tokens = tokens;
        this.saved += 1;
    }

    saveCodeVerifier(verifier) {
        this.#verifier = verifier;
    }

    codeVerifier() {
        return this.#verifier;
    }

    saveDiscoveryState(state) {
        this.#discovery = state;
    }

    discoveryState() {
        return this.#discovery;
    }

    async redirectToAuthorization(url) {
        this.logins += 1;
        const back = await browse(url, REDIRECT);
        if (back.searchParams.get('state') !== this.#state) throw new Error('the state is not the one that was sent');
        this.#callback = back.searchParams;
    }

    /** What the authorization server sent back with the user; once. */
    takeCallback() {
        const callback = this.#callback;
        this.#callback = undefined;
        if (callback === undefined) throw new Error('nobody was sent to the authorization server');
        if (!callback.has('code')) throw new Error(`no code: ${callback.get('error')}`);
        return callback;
    }
}

/**
 * Does something that may need the user first, and then does it again: the SDKs throw once the user is on the way.
 *
 * @param {(error: Error) => boolean} isUnauthorized whether an error is the SDK's word for that
 * @param {() => Promise<void>} finish hands the code to the SDK
 */
export async function withUser(act, isUnauthorized, finish) {
    // Once to be let in, and once more where a first token is good for too little.
    for (let attempt = 0; attempt < 2; attempt++) {
        try {
            return await act();
        } catch (error) {
            if (!isUnauthorized(error)) throw error;
            await finish();
        }
    }
    return act();
}
