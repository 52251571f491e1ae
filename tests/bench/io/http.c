/* SPDX-License-Identifier: Apache-2.0 */
/* A loop of libcurl: as many handles as reads, and curl_multi_perform. */
#include <curl/curl.h>
#include <stdio.h>
#include <string.h>

#include "tests/bench/io/compare.h"

#define DEPTH_MAX 128

static CURLM *multi;
static struct one {
    CURL *easy;
    char *to;
    size_t got;
} handles[DEPTH_MAX];

static size_t on_body(char *from, size_t one, size_t bytes, void *arg)
{
    struct one *h = arg;
    memcpy(h->to + h->got, from, one * bytes);
    h->got += one * bytes;
    return one * bytes;
}

void library_open(struct compare *c)
{
    char ca[IO_URL_TEXT_BYTES + 16];
    snprintf(ca, sizeof ca, "%s/ca-cert.pem", c->parsed.certificates);
    multi = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK ? curl_multi_init() : NULL;
    for (uint32_t i = 0; multi && i < c->depth; i++) {
        struct one *h = &handles[i];
        h->easy = curl_easy_init();
        h->to = c->buffer + (size_t)i * c->bytes;
        if (!h->easy || curl_easy_setopt(h->easy, CURLOPT_URL, c->url) != CURLE_OK)
            compare_fail("libcurl cannot be used");
        curl_easy_setopt(h->easy, CURLOPT_WRITEFUNCTION, on_body);
        curl_easy_setopt(h->easy, CURLOPT_WRITEDATA, h);
        curl_easy_setopt(h->easy, CURLOPT_PRIVATE, h);
        curl_easy_setopt(h->easy, CURLOPT_BUFFERSIZE, 256L * 1024);
        if (c->parsed.certificates[0])
            curl_easy_setopt(h->easy, CURLOPT_CAINFO, ca);
    }
}

static void start(struct compare *c, struct one *h)
{
    char range[64];
    uint64_t at = compare_offset(c);
    snprintf(range, sizeof range, "%llu-%llu", (unsigned long long)at,
             (unsigned long long)(at + c->bytes - 1));
    h->got = 0;
    curl_easy_setopt(h->easy, CURLOPT_RANGE, range);
    (void)curl_multi_add_handle(multi, h->easy);
}

uint64_t library_loop(struct compare *c)
{
    uint64_t sum = 0;
    uint32_t open = 0;
    for (; open < c->depth; open++)
        start(c, &handles[open]);
    while (open > 0) {
        int running, left;
        CURLMsg *message;
        (void)curl_multi_perform(multi, &running);
        while ((message = curl_multi_info_read(multi, &left)) != NULL) {
            struct one *h = NULL;
            CURL *easy = message->easy_handle;
            if (message->data.result != CURLE_OK ||
                curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&h) != CURLE_OK ||
                h->got != c->bytes)
                compare_fail("a read of libcurl failed");
            (void)curl_multi_remove_handle(multi, easy);
            sum += c->bytes;
            if (compare_over(c))
                open--;
            else
                start(c, h);
        }
        if (open > 0)
            (void)curl_multi_poll(multi, NULL, 0, 1000, NULL);
    }
    return sum;
}
