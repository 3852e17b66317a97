package gatewayapi

import (
	"slices"
	"strings"

	v1 "sigs.k8s.io/gateway-api/apis/v1"
)

// supportedVersion begins the versions of the definitions that the translation is made for.
const supportedVersion = "v1.6."

// features are those of the API that are served: the status of our classes declares them, and the API's conformance tests try each. They have to be sorted.
// Retries are fields of the experimental channel only.
func features(experimental bool) []v1.FeatureName {
	all := []v1.FeatureName{
		"BackendTLSPolicy",
		"BackendTLSPolicySANValidation",
		"GRPCRoute",
		"GRPCRouteNamedRouteRule",
		"Gateway",
		"GatewayAddressEmpty",
		"GatewayBackendClientCertificate",
		"GatewayFrontendClientCertificateValidation",
		"GatewayFrontendClientCertificateValidationInsecureFallback",
		"GatewayHTTPListenerIsolation",
		"GatewayHTTPSListenerDetectMisdirectedRequests",
		"GatewayInfrastructure",
		"GatewayPort8080",
		"GatewayStaticAddresses",
		"HTTPRoute",
		"HTTPRoute303RedirectStatusCode",
		"HTTPRoute307RedirectStatusCode",
		"HTTPRoute308RedirectStatusCode",
		"HTTPRouteBackendProtocolH2C",
		"HTTPRouteBackendProtocolWebSocket",
		"HTTPRouteBackendRequestHeaderModification",
		"HTTPRouteBackendTimeout",
		"HTTPRouteCORS",
		"HTTPRouteDestinationPortMatching",
		"HTTPRouteHostRewrite",
		"HTTPRouteMethodMatching",
		"HTTPRouteNamedRouteRule",
		"HTTPRouteParentRefPort",
		"HTTPRoutePathRedirect",
		"HTTPRoutePathRewrite",
		"HTTPRoutePortRedirect",
		"HTTPRouteQueryParamMatching",
		"HTTPRouteRequestMirror",
		"HTTPRouteRequestMultipleMirrors",
		"HTTPRouteRequestPercentageMirror",
		"HTTPRouteRequestTimeout",
		"HTTPRouteResponseHeaderModification",
		"HTTPRouteRetry",
		"HTTPRouteRetryBackendTimeout",
		"HTTPRouteRetryConnectionError",
		"HTTPRouteSchemeRedirect",
		"ListenerSet",
		"ReferenceGrant",
		"TCPRoute",
		"TLSRoute",
		"TLSRouteModeMixed",
		"TLSRouteModeTerminate",
		"UDPRoute",
	}
	if experimental {
		return all
	}
	return slices.DeleteFunc(all, func(f v1.FeatureName) bool { return strings.HasPrefix(string(f), "HTTPRouteRetry") })
}
