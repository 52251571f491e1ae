/* SPDX-License-Identifier: Apache-2.0 */
/* Sets what requests to web servers and S3 have in common. */
#include "lib/io/server/http/request.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/base/clock.h"
#include "lib/io/server/remote.h"

void request_address(const struct io_url *url, const char *more, char text[REQUEST_ADDRESS_BYTES])
{
    bool six = strchr(url->host, ':') != NULL;
    snprintf(text, REQUEST_ADDRESS_BYTES, "%s://%s%s%s:%u%s%s", url->tls ? "https" : "http",
             six ? "[" : "", url->host, six ? "]" : "", (unsigned)url->port, url->target, more);
}

int request_resolve(const struct io_url *url, struct curl_slist **list)
{
    char text[2 * IO_URL_TEXT_BYTES + 16];
    bool six = strchr(url->address, ':') != NULL;
    *list = NULL;
    if (!url->address[0])
        return 0;
    snprintf(text, sizeof text, "%s:%u:%s%s%s", url->host, (unsigned)url->port, six ? "[" : "",
             url->address, six ? "]" : "");
    *list = curl_slist_append(NULL, text);
    return *list ? 0 : -1;
}

/* The directory of the certificates is that of nbds. Without one, the system's authorities. */
static void set_tls(CURL *easy, const struct io_url *url)
{
    char path[IO_URL_TEXT_BYTES + 32];
    static const struct {
        const char *name;
        CURLoption option;
    } files[] = {{"ca-cert.pem", CURLOPT_CAINFO},
                 {"client-cert.pem", CURLOPT_SSLCERT},
                 {"client-key.pem", CURLOPT_SSLKEY}};
    /* One file of authorities is parsed once for all connections; a directory beside it, which is
     * the default, would have it parsed for each of them, with 5 MB each. */
    if (curl_version_info(CURLVERSION_NOW)->cainfo || url->certificates[0])
        curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
    for (size_t i = 0; url->certificates[0] && i < ARRAY_LEN(files); i++) {
        snprintf(path, sizeof path, "%s/%s", url->certificates, files[i].name);
        if (access(path, F_OK) == 0)
            curl_easy_setopt(easy, files[i].option, path);
    }
}

int request_set(CURL *easy, const struct io_url *url, const char *address,
                struct curl_slist *resolve)
{
    set_tls(easy, url);
    if (curl_easy_setopt(easy, CURLOPT_URL, address) != CURLE_OK)
        return -1;
    curl_easy_setopt(easy, CURLOPT_RESOLVE, resolve);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(easy, CURLOPT_PROXY, ""); /* none from the environment */
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "sluice");
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)(REMOTE_ATTEMPT_NS / NS_PER_MS));
    curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    return 0;
}

/* ---- headers --------------------------------------------------------------------------------- */

bool request_header(struct curl_slist **list, const char *name, const char *value)
{
    char line[sizeof(struct credentials)];
    int n = snprintf(line, sizeof line, "%s: %s", name, value);
    struct curl_slist *longer =
        n > 0 && (size_t)n < sizeof line ? curl_slist_append(*list, line) : NULL;
    if (longer)
        *list = longer;
    explicit_bzero(line, sizeof line);
    return longer != NULL;
}

void request_forget(struct curl_slist **list)
{
    for (struct curl_slist *at = *list; at; at = at->next)
        explicit_bzero(at->data, strlen(at->data));
    curl_slist_free_all(*list);
    *list = NULL;
}

bool request_sign_headers(struct curl_slist **list, const struct credentials *c,
                          const char *body_hash)
{
    return !c->id[0] || (request_header(list, "x-amz-content-sha256", body_hash) &&
                         (!c->token[0] || request_header(list, "x-amz-security-token", c->token)));
}

bool request_sign(CURL *easy, const struct io_url *url, const struct credentials *c)
{
    char how[16 + IO_URL_TEXT_BYTES];
    snprintf(how, sizeof how, "aws:amz:%s:s3", url->region);
    return !c->id[0] || (curl_easy_setopt(easy, CURLOPT_AWS_SIGV4, how) == CURLE_OK &&
                         curl_easy_setopt(easy, CURLOPT_USERNAME, c->id) == CURLE_OK &&
                         curl_easy_setopt(easy, CURLOPT_PASSWORD, c->secret) == CURLE_OK);
}

void request_code(const char *body, char code[REQUEST_CODE_BYTES])
{
    const char *from = strstr(body, "<Code>");
    size_t n = from ? strcspn(from + 6, "<") : 0;
    code[0] = 0;
    if (n == 0 || n > 48 ||
        strspn(from + 6, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") < n)
        return;
    snprintf(code, REQUEST_CODE_BYTES, " (%.*s)", (int)n, from + 6);
}
