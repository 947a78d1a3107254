/*
 * What NIXL finds in libplugin_KVCL.so: the backend's name, options and memories, and how one is made.
 */
#include "engine.hh"

#include "backend/backend_plugin.h"

#include <kvcl/kvcl_query.h>

static_assert(NIXL_PLUGIN_API_VERSION == 1, "the plugin is written for version 1 of NIXL's plugin interface");

extern "C" NIXL_PLUGIN_EXPORT nixlBackendPlugin *nixl_plugin_init()
{
    return nixlBackendPluginCreator<kvcl_nixl::Engine>::create(NIXL_PLUGIN_API_VERSION, "KVCL", kvcl_version_string(),
                                                               kvcl_nixl::default_options(),
                                                               kvcl_nixl::Engine::memories());
}

extern "C" NIXL_PLUGIN_EXPORT void nixl_plugin_fini()
{
}
