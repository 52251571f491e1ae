/* SPDX-License-Identifier: Apache-2.0 */
/* A web server of one file for tests, on 127.0.0.1, which can be told to fail in many ways while it
 * runs, and can be killed. Every path is that file. A process for each connection; all of them end
 * with the test. */
#ifndef SLUICE_TESTS_WEB_H
#define SLUICE_TESTS_WEB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum web_fault {
    WEB_RIGHT,
    WEB_SLOW,        /* a pause of 3 ms before each answer */
    WEB_TRICKLE,     /* a pause of 50 ms after each 4 KiB of a body */
    WEB_CUT,         /* the connection ends in the middle of a body */
    WEB_SILENT,      /* the connection ends without an answer */
    WEB_BUSY,        /* 503 with Retry-After: 1 */
    WEB_ERROR,       /* 500 */
    WEB_SHORT,       /* 206 with a half of the range */
    WEB_OTHER_RANGE, /* 206 with the bytes before the range */
    WEB_LONG,        /* chunked, with more bytes than the range */
    WEB_WHOLE,       /* 200 with the file */
    WEB_ENCODED,     /* 206 with a Content-Encoding */
    WEB_STALL,       /* no answer */
    WEB_REDIRECT,    /* 302 to another host */
    WEB_MOVED,       /* 301 without an address, with S3's text of another region */
    WEB_DENIED,      /* 403 with S3's text of an expired token */
    WEB_ENDLESS,     /* the same with a body that does not end */
    WEB_WRONG_BYTES, /* every byte is another one */
    WEB_REPLACED,    /* another ETag, and 412 for the old one */
    WEB_IGNORANT,    /* another ETag, and no attention to If-Match */
    WEB_WEAK         /* a weak ETag, which is no condition */
};

struct web_control {        /* shared with its processes */
    _Atomic unsigned fault; /* enum web_fault */
    _Atomic unsigned times; /* of so many answers, then they are right; 0: of all */
    _Atomic unsigned requests, failed, connections;
    _Atomic uint64_t bytes; /* of bodies */
};

struct web {
    pid_t pid; /* of its process group; 0: it does not run */
    uint16_t port;
    struct web_control *control;
};

/* Starts it, on the same port as before if it ran. False: it cannot. */
bool web_start(struct web *w, const char *file);
/* SIGKILL to all of its processes. */
void web_kill(struct web *w);
/* From now on, for `times` answers (0: all), which are counted from 0 again. */
void web_fault(struct web *w, enum web_fault fault, unsigned times);

#endif
