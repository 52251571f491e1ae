/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of models in Ollama's form: there is one, which is loaded. Clients read these strictly, so
 * that no member may be missing. */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "procs/engine/gateway/dialects/ollama/ollama.h"

/* The API's version, which clients compare with those that have tools and capabilities. */
#define API_VERSION "0.30.0"

json_t *ollama_time(int64_t seconds)
{
    char text[32];
    struct tm at;
    time_t t = (time_t)seconds;
    if (!gmtime_r(&t, &at) || strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &at) == 0)
        return NULL;
    return json_string(text);
}

/* 64 digits that name the model; no hash of its file. */
static json_t *digest(const struct api_model *m)
{
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    for (const char *at = m->name; *at; at++)
        h = (h ^ (unsigned char)*at) * 0x100000001b3u;
    return json_sprintf("%016" PRIx64 "%016" PRIx64 "%016" PRIx64 "%016" PRIx64, h, m->bytes,
                        m->parameters, m->context);
}

static json_t *parameter_size(const struct api_model *m)
{
    return json_sprintf("%.1fB", (double)m->parameters / 1e9);
}

static json_t *details(const struct api_model *m)
{
    return json_pack("{s:s, s:s, s:s, s:[s], s:o, s:s}", "parent_model", "", "format", "gguf",
                     "family", m->arch, "families", m->arch, "parameter_size", parameter_size(m),
                     "quantization_level", m->type);
}

static json_t *entry(const struct api_model *m)
{
    return json_pack("{s:s, s:s, s:o, s:I, s:o, s:o}", "name", m->name, "model", m->name,
                     "modified_at", ollama_time(m->started), "size", (json_int_t)m->bytes, "digest",
                     digest(m), "details", details(m));
}

static json_t *tags(const struct api_model *m)
{
    return json_pack("{s:[o]}", "models", entry(m));
}

/* Far away: the engine keeps the model. */
static json_t *ps(const struct api_model *m)
{
    json_t *e = entry(m);
    json_object_set_new(e, "expires_at", json_string("2318-01-01T00:00:00Z"));
    json_object_set_new(e, "size_vram", json_integer(0));
    json_object_set_new(e, "context_length", json_integer((json_int_t)m->context));
    return json_pack("{s:[o]}", "models", e);
}

static json_t *capabilities(const struct api_model *m)
{
    json_t *all = json_pack("[s]", "completion");
    if (m->tools)
        json_array_append_new(all, json_string("tools"));
    if (m->thinking)
        json_array_append_new(all, json_string("thinking"));
    if (m->gap)
        json_array_append_new(all, json_string("insert"));
    return all;
}

static json_t *model_info(const struct api_model *m)
{
    char key[64];
    json_t *info = json_pack("{s:s, s:I}", "general.architecture", m->arch,
                             "general.parameter_count", (json_int_t)m->parameters);
    snprintf(key, sizeof key, "%.32s.context_length", m->arch);
    json_object_set_new(info, key, json_integer((json_int_t)m->context));
    return info;
}

static json_t *show(const struct api_model *m)
{
    return json_pack("{s:s, s:s, s:o, s:s, s:o, s:o, s:o, s:o}", "license", "", "modelfile", "",
                     "parameters", json_sprintf("num_ctx %" PRIu64, m->context), "template", "",
                     "details", details(m), "model_info", model_info(m), "capabilities",
                     capabilities(m), "modified_at", ollama_time(m->started));
}

static json_t *version(const struct api_model *m)
{
    (void)m;
    return json_pack("{s:s}", "version", API_VERSION);
}

const struct dialect ollama_tags = {.error = ollama_error, .describe = tags};
const struct dialect ollama_ps = {.error = ollama_error, .describe = ps};
const struct dialect ollama_show = {.error = ollama_error, .describe = show};
const struct dialect ollama_version = {.error = ollama_error, .describe = version};
