/*
 * What a figure depends on besides its options: the processor, the host, the version of the library and the date.
 */
#include "config.h"
#include "tools/machine.h"

#include <kvcl/kvcl.h>

#include <string.h>
#include <sys/utsname.h>
#include <time.h>

/* The value of "model name   : VALUE", without the end of the line; NULL: another line. */
static const char *value_of(char *line, const char *name)
{
    const size_t len = strlen(name);
    char         *at = strchr(line, ':');

    if ((at == NULL) || (strncmp(line, name, len) != 0) || ((line[len] != '\t') && (line[len] != ' '))) {
        return NULL;
    }
    line[len] = '\0';
    at[strcspn(at, "\n")] = '\0';
    return at + 1 + strspn(at + 1, " \t");
}

void machine_processor_of(FILE *cpuinfo, const char *otherwise, char *buf, size_t cap)
{
    char       line[1024], name[128] = "", model[16] = "";
    const char *value;

    /* The first processor's lines end with an empty one. */
    while ((cpuinfo != NULL) && (fgets(line, (int)sizeof(line), cpuinfo) != NULL) && (line[0] != '\n')) {
        value = value_of(line, "model name");
        if (value != NULL) {
            snprintf(name, sizeof(name), "%s", value);
            continue;
        }
        value = value_of(line, "model");
        if (value != NULL) {
            snprintf(model, sizeof(model), "%s", value);
        }
    }
    if (name[0] == '\0') {
        snprintf(buf, cap, "%s", otherwise);
    } else {
        snprintf(buf, cap, "%s%s%s", name, (model[0] != '\0') ? ", model " : "", model);
    }
}

void machine_read(machine_t *machine)
{
    FILE           *file = fopen("/proc/cpuinfo", "re");
    time_t         now   = time(NULL);
    struct utsname name  = {.machine = ""};
    struct tm      tm;

    (void)uname(&name);
    machine_processor_of(file, name.machine, machine->processor, sizeof(machine->processor));
    if (file != NULL) {
        (void)fclose(file);
    }
    snprintf(machine->host, sizeof(machine->host), "%s", name.nodename);
    snprintf(machine->version, sizeof(machine->version), "%s", kvcl_version_string());
    machine->date[0] = '\0';
    if (gmtime_r(&now, &tm) != NULL) {
        (void)strftime(machine->date, sizeof(machine->date), "%Y-%m-%dT%H:%M:%SZ", &tm);
    }
}

void machine_json(json_out_t *json)
{
    machine_t machine;

    machine_read(&machine);
    json_string(json, "processor", machine.processor);
    json_string(json, "host", machine.host);
    json_string(json, "version", machine.version);
    json_string(json, "date", machine.date);
}
