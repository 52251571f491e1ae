/* SPDX-License-Identifier: Apache-2.0 */
/* Serves the gateway's paths over HTTP: the paths of routes.tbl.h. */
#ifndef SLUICE_ENGINE_GATEWAY_ROUTES_H
#define SLUICE_ENGINE_GATEWAY_ROUTES_H

#include "procs/engine/gateway/http/http.h"

extern const struct http_service gateway_service;

#endif
