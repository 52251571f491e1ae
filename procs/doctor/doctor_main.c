/* sluice doctor: what this machine can do, and what that means for sluice.
 *
 * Measures a drive (by reading a file, or a scratch file in a directory) and the memory, and looks
 * at what an engine needs. Talks to no engine, changes nothing, leaves nothing behind: the scratch
 * file has no name. Takes at most 256 MiB of memory and of the drive at a time. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "procs/client/options.h"
#include "procs/doctor/doctor.h"

#define SECONDS_DEFAULT      10
#define EXPERT_BYTES_DEFAULT (4 * MIB)
#define EXPERT_BYTES_MAX     (16 * MIB) /* sixteen of them are read at once */

struct doctor {
    struct drive_plan drive;
    bool json, skip_drive;
};

static void usage(FILE *out)
{
    fprintf(
        out,
        "usage: sluice doctor [--path DIR|FILE] [options]\n"
        "\n"
        "Measures what sluice depends on, and says what it means. Less than 20 seconds.\n"
        "\n"
        "  -p, --path DIR|FILE    the drive to read: a model, or a directory for a scratch file\n"
        "                         (default: the current directory)\n"
        "      --expert-bytes N   largest read (default 4MiB): the size of one expert\n"
        "      --seconds N        for the drive (default %d)\n"
        "      --no-drive         leave the drive out\n"
        "  -o, --output text|json (default text)\n",
        SECONDS_DEFAULT);
}

enum { OPT_EXPERT = 256, OPT_SECONDS, OPT_NO_DRIVE };

static const struct option options[] = {
    {"path", 1, NULL, 'p'},
    {"expert-bytes", 1, NULL, OPT_EXPERT},
    {"seconds", 1, NULL, OPT_SECONDS},
    {"no-drive", 0, NULL, OPT_NO_DRIVE},
    {"output", 1, NULL, 'o'},
    {"help", 0, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static int set_expert(struct doctor *d, const char *text, struct error *error)
{
    if (!bytes_parse(text, &d->drive.expert_bytes) || d->drive.expert_bytes < PAGE_BYTES ||
        d->drive.expert_bytes > EXPERT_BYTES_MAX)
        return error_set(error, ERR_BAD_INPUT, "--expert-bytes: '%.40s' is not from 4KiB to 16MiB",
                         text);
    return 0;
}

static int one_option(struct doctor *d, int option, const char *value, struct error *error)
{
    int64_t number;
    switch (option) {
    case 'p': d->drive.path = value; return 0;
    case OPT_EXPERT: return set_expert(d, value, error);
    case OPT_SECONDS:
        if (option_i64("--seconds", value, 1, 600, &number, error) != 0)
            return -1;
        d->drive.seconds = (double)number;
        return 0;
    case OPT_NO_DRIVE: d->skip_drive = true; return 0;
    case 'o':
        d->json = strcmp(value, "json") == 0;
        if (!d->json && strcmp(value, "text") != 0)
            return error_set(error, ERR_BAD_INPUT, "--output: '%.40s' is not text or json", value);
        return 0;
    case 'h': usage(stdout); exit(fflush(stdout) == 0 ? 0 : 1);
    default: return error_set(error, ERR_BAD_INPUT, "see sluice doctor --help");
    }
}

static int parse(struct doctor *d, int argc, char **argv, struct error *error)
{
    int option;
    while ((option = getopt_long(argc, argv, "p:o:h", options, NULL)) != -1)
        if (one_option(d, option, optarg, error) != 0)
            return -1;
    if (optind < argc)
        return error_set(error, ERR_BAD_INPUT, "'%.80s' is not an option", argv[optind]);
    return 0;
}

static int run(struct doctor *d, struct error *error)
{
    struct findings findings;
    findings_open(&findings);
    int rc = d->skip_drive ? 0 : drive_examine(&findings, &d->drive, error);
    if (rc == 0) {
        memory_examine(&findings);
        machine_examine(&findings);
        findings_print(&findings, d->json);
        if (fflush(stdout) != 0)
            rc = error_set(error, ERR_FAILED, "cannot write to standard output");
    }
    findings_close(&findings);
    return rc;
}

int main(int argc, char **argv)
{
    struct doctor d = {
        .drive = {.path = ".", .expert_bytes = EXPERT_BYTES_DEFAULT, .seconds = SECONDS_DEFAULT}};
    struct error error;
    return parse(&d, argc, argv, &error) == 0 && run(&d, &error) == 0 ? 0
                                                                      : report("doctor", &error);
}
