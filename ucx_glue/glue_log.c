/*
 * UCX's log. UCX writes ERROR lines to stderr for every connection whose peer has died, which is no error of this
 * process: KVCL reports it by the requests' statuses. UCX's errors and warnings are therefore redirected to KVCL's log:
 * at warn level while a transport is being opened, when they have the reason of a failure, otherwise at debug level.
 * UCX's own log stays in use where UCX_LOG_LEVEL or UCX_LOG_FILE is set, and while no KVCL transport is open.
 *
 * The handler is installed once and stays: UCX can remove only the last one. Any thread calls it, UCX's locks held.
 */
#include "config.h"
#include "ucx_glue/glue.h"
#include "base/log.h"
#include "base/settings.h"

#include <ucs/debug/log_def.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static _Atomic int open_now, opening;

static ucs_log_func_rc_t on_log(const char *file, unsigned line, const char *function, ucs_log_level_t level,
                                const ucs_log_component_config_t *component, const char *message, va_list ap)
{
    char text[512];

    (void)function;
    (void)component;
    if ((level == UCS_LOG_LEVEL_FATAL) || (level > UCS_LOG_LEVEL_WARN) || (open_now == 0)) {
        return UCS_LOG_FUNC_RC_CONTINUE;
    }
    vsnprintf(text, sizeof(text), message, ap);
    kvcl_log_at((opening > 0) ? KVCL_LOG_WARN : KVCL_LOG_DEBUG, "ucx: %s (%s:%u)", text,
                (strrchr(file, '/') != NULL) ? strrchr(file, '/') + 1 : file, line);
    return UCS_LOG_FUNC_RC_STOP;
}

static void put_in(void)
{
    if ((kvcl_settings_getenv(NULL, "UCX_LOG_LEVEL") == NULL) &&
        (kvcl_settings_getenv(NULL, "UCX_LOG_FILE") == NULL)) {
        ucs_log_push_handler(on_log);
    }
}

void kvcl_glue_log_opening(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, put_in);
    ++open_now;
    ++opening;
}

void kvcl_glue_log_opened(void)
{
    --opening;
}

void kvcl_glue_log_closed(void)
{
    --open_now;
}
