// A browser for one errand: it opens an authorization URL, keeps cookies, follows redirects and ends where the client's
// own redirect URI begins.
//
// node browser.mjs URL    opens the URL and also visits the redirect URI, as the browser of `weir login` does

import { argv } from 'node:process';
import { fileURLToPath } from 'node:url';

/** More redirects than any login takes. */
const MOST_STEPS = 20;

/**
 * Opens an authorization URL.
 *
 * @param {URL} start where the client wants the user to go
 * @param {string | URL} redirectUri where the authorization server sends the user back
 * @returns {Promise<URL>} the redirect URI with what the authorization server added to it
 */
export async function browse(start, redirectUri) {
    const jar = new Map();
    const home = `${redirectUri}`;
    let url = new URL(start);
    for (let step = 0; step < MOST_STEPS; step++) {
        const cookie = [...jar].map(([name, value]) => `${name}=${value}`).join('; ');
        const response = await fetch(url, { redirect: 'manual', headers: cookie ? { cookie } : {} });
        for (const line of response.headers.getSetCookie()) {
            const [name, value] = line.split(';', 1)[0].split(/=(.*)/s);
            if (value === '' || /expires=Thu, 01 Jan 1970/i.test(line)) jar.delete(name);
            else jar.set(name, value);
        }
        const location = response.headers.get('location');
        if (location === null) throw new Error(`${url} answered ${response.status}: ${await response.text()}`);
        url = new URL(location, url);
        if (`${url.origin}${url.pathname}` === home) return url;
    }
    throw new Error(`${start} redirects without an end`);
}

if (argv[1] === fileURLToPath(import.meta.url)) {
    const start = new URL(argv[2]);
    const back = await browse(start, start.searchParams.get('redirect_uri'));
    const page = await fetch(back);
    console.log(`${page.status} ${await page.text()}`);
}
