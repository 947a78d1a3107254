/*
 * Splitting a line of named parts (build_info.h): "kvcl 0.1.0, wire version 1; ucx 1.13.1; ...; release; device
 * memory: cuda". A part begins the line or follows "; " or ", "; it ends at ';', the first one at ',' as well. Pure.
 */
#include "config.h"
#include "tools/build_info.h"

#include <string.h>

/* Whether a part may begin at this place of the text. */
static bool begins(const char *text, const char *at)
{
    return (at == text) || ((at - text >= 2) && (at[-1] == ' ') && ((at[-2] == ';') || (at[-2] == ',')));
}

bool build_part(const char *text, const char *name, char *part, size_t size)
{
    const size_t name_len = strlen(name);
    const char   *at      = text;
    size_t       len;

    part[0] = '\0';
    while ((at = strstr(at, name)) != NULL) {
        const char *value = at + name_len;

        if (begins(text, at) && ((*value == ' ') || ((value[0] == ':') && (value[1] == ' ')))) {
            value += (*value == ':') ? 2 : 1;
            len    = strcspn(value, (at == text) ? ",;" : ";");
            len    = (len < size) ? len : size - 1;
            memcpy(part, value, len);
            part[len] = '\0';
            return true;
        }
        at = value;
    }
    return false;
}
