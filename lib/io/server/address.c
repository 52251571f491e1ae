/* SPDX-License-Identifier: Apache-2.0 */
/* Completes URLs of servers before a sandbox. */
#include "lib/io/server/address.h"

#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int io_address_put(char text[IO_URL_TEXT_BYTES], const char *url, size_t at, size_t removed,
                   const char *new, struct error *error)
{
    char before[IO_URL_TEXT_BYTES];
    memcpy(before, text, sizeof before);
    int n = snprintf(text, sizeof before, "%.*s%s%s", (int)at, before, new, before + at + removed);
    if (n < 0 || (size_t)n >= sizeof before)
        return error_set(error, ERR_BAD_INPUT, "too long with '%.100s': %.200s", new, url);
    return 0;
}

static int resolve_host(const char *url, const struct io_url *parsed,
                        char address[INET6_ADDRSTRLEN], bool *six, struct error *error)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    int rc = getaddrinfo(parsed->host, NULL, &hints, &found);
    if (rc == 0) {
        rc = getnameinfo(found->ai_addr, found->ai_addrlen, address, INET6_ADDRSTRLEN, NULL, 0,
                         NI_NUMERICHOST);
        *six = found->ai_family == AF_INET6;
        freeaddrinfo(found);
    }
    return rc == 0 ? 0
                   : error_set(error, ERR_BAD_INPUT, "%.200s: the host %.100s: %s", url,
                               parsed->host, gai_strerror(rc));
}

/* A process with a sandbox cannot ask for an address. Network block devices get it in place of
 * their host; web servers as a setting, because requests and certificates have the name. */
static int put_address(char to[IO_URL_TEXT_BYTES], const char *url, const struct io_url *parsed,
                       struct error *error)
{
    char address[INET6_ADDRSTRLEN], text[INET6_ADDRSTRLEN + 16];
    bool six = false;
    if (!parsed->tcp || !parsed->host[0] || io_url_numeric(parsed) || parsed->address[0])
        return 0;
    if (parsed->backend == IO_NBD && parsed->certificates[0])
        return error_set(error, ERR_BAD_INPUT,
                         "%.200s: with TLS, give the address in numbers, and let the certificate "
                         "of the server name it",
                         url);
    if (resolve_host(url, parsed, address, &six, error) != 0)
        return -1;
    if (parsed->backend == IO_NBD) {
        snprintf(text, sizeof text, six ? "[%s]" : "%s", address);
        return io_address_put(to, url, parsed->host_at, parsed->host_bytes, text, error);
    }
    snprintf(text, sizeof text, "%caddress=%s", parsed->separator, address);
    return io_address_put(to, url, strlen(url), 0, text, error);
}

/* NULL: it is not there, or empty, which is the same to other programs. */
static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* Of S3, where nothing else is given: the file that other programs read, too. */
static int put_credentials(char to[IO_URL_TEXT_BYTES], const char *url, const struct io_url *parsed,
                           struct error *error)
{
    char path[PATH_MAX], text[3 * PATH_MAX + 32];
    const char *home = variable("HOME"), *named = variable("AWS_SHARED_CREDENTIALS_FILE");
    if (!parsed->s3 || parsed->credentials[0] || variable("AWS_ACCESS_KEY_ID"))
        return 0;
    if (!named && !home)
        return 0;
    int n =
        snprintf(path, sizeof path, "%s%s", named ? named : home, named ? "" : "/.aws/credentials");
    if (n < 0 || (size_t)n >= sizeof path || access(path, R_OK) != 0)
        return 0;
    n = snprintf(text, sizeof text, "%ccredentials=", parsed->separator);
    io_url_encode(path, text + n); /* ',' and ':' end an item of --devices */
    return io_address_put(to, url, strlen(url), 0, text, error);
}

/* Of Ceph, where nothing else is given: the file that its programs read, too. */
static int put_conf(char to[IO_URL_TEXT_BYTES], const char *url, const struct io_url *parsed,
                    struct error *error)
{
    char text[3 * PATH_MAX + 32];
    const char *named = variable("CEPH_CONF"), *path = named ? named : "/etc/ceph/ceph.conf";
    if (parsed->backend != IO_RADOS || parsed->conf[0])
        return 0;
    if (strlen(path) >= PATH_MAX || access(path, R_OK) != 0)
        return error_set_errno(error, ERR_BAD_INPUT, errno, "%.200s: %.200s (conf= names another)",
                               url, path);
    int n = snprintf(text, sizeof text, "%cconf=", parsed->separator);
    io_url_encode(path, text + n);
    return io_address_put(to, url, strlen(url), 0, text, error);
}

int io_address_complete(const char *url, char to[IO_URL_TEXT_BYTES], struct error *error)
{
    struct io_url parsed;
    char whole[IO_URL_TEXT_BYTES];
    if (io_url_parse(url, &parsed, error) != 0)
        return -1;
    memset(to, 0, IO_URL_TEXT_BYTES);
    if (io_address_put(to, url, 0, 0, url, error) != 0 ||
        put_credentials(to, url, &parsed, error) != 0 || put_conf(to, url, &parsed, error) != 0)
        return -1;
    memcpy(whole, to, sizeof whole);
    if (io_url_parse(whole, &parsed, error) != 0)
        return -1;
    return put_address(to, whole, &parsed, error);
}
