/* The randomness of the system, as the tests of this crate see it: always the same bytes. The order of
 * maps in the standard library and the order in which tokio wakes tasks follow from it, so that a seed
 * gives the same run each time. Keys and nonces of TLS do not come from here. */

#include <string.h>
#include <sys/types.h>

ssize_t getrandom(void *buffer, size_t length, unsigned int flags)
{
    (void)flags;
    memset(buffer, 7, length);
    return (ssize_t)length;
}
