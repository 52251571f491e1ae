/* SPDX-License-Identifier: Apache-2.0 */
/* The tuning of the model, if the choice of policies is left to sluice: before anything is
 * opened. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/log.h"
#include "lib/tunings/tunings.h"
#include "procs/engine/supervisor/start/start.h"
#include "procs/engine/supervisor/supervisor.h"

static void log_it(void *arg, const char *line)
{
    (void)arg;
    log_info("%s", line);
}

static int take(struct supervisor *s, const struct tuning *t, struct error *error)
{
    if (!t->store[0])
        return 0;
    if (params_set(&s->params, "plan", t->plan, error) != 0 ||
        params_set(&s->params, "preset", t->preset, error) != 0)
        return -1;
    if (strlen(t->store) >= sizeof s->options.model)
        return error_set(error, ERR_BAD_INPUT, "the path of the tuned store is too long");
    strcpy(s->options.model, t->store);
    s->options.tuned = true;
    return 0;
}

int tuned_take(struct supervisor *s, struct error *error)
{
    if (!s->options.choice_is_ours || s->options.print_memory || s->params.origin[0])
        return 0;
    struct tuning *t = malloc(sizeof *t);
    if (!t)
        return error_set(error, ERR_NO_MEMORY, "out of memory (tuning)");
    struct tuning_start start = {.command = "run",
                                 .model = s->options.model,
                                 .max_loss = s->params.max_loss,
                                 .budget = s->params.budget,
                                 .ask = isatty(STDIN_FILENO) && isatty(STDERR_FILENO),
                                 .say = log_it};
    int status = tuning_offer(&start, t, error);
    if (status > 0)
        status = take(s, t, error);
    free(t);
    return status;
}
